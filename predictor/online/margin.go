package online

import (
	"fmt"

	"github.com/cadence-slo/cadence/predictor/conformal"
)

// arm follows a quantile by scale-free gradient descent, from the split quantile of the rows it has seen: once there are enough for one,
// and again each time that they have doubled, until its window is full. Where too many of them have not ended there is none, and it
// follows them from what it began with: to wait for them would be to let in even more.
type arm struct {
	conformal.Arm
	next     int  // rows at which it is anchored
	need     int  // rows before it is ready
	ready    bool // it has seen enough
	anchored bool // it has been at the split quantile of its rows
}

// newArm starts at a quantile, or where rows of the past say. need is how many rows it begins with.
func newArm(alpha, start float64, size, need int, rows []conformal.Row) (*arm, error) {
	s, err := conformal.NewSFOGD(alpha, start, conformal.DefaultSFOGD(alpha), size, rows)
	if err != nil {
		return nil, fmt.Errorf("online: margin: %w", err)
	}
	need = max(1, min(need, size))
	a := &arm{Arm: s, next: need, need: need}
	a.anchor()
	return a, nil
}

// Observe takes what is known of a row. See conformal.Arm.
func (a *arm) Observe(r conformal.Row) error {
	if err := a.Arm.Observe(r); err != nil {
		return err
	}
	a.anchor()
	return nil
}

func (a *arm) relax() {
	if s, ok := a.Arm.(*conformal.SFOGD); ok {
		s.Relax()
	}
}

func (a *arm) anchor() {
	n := a.Len()
	a.ready = a.ready || n >= a.need
	if n < a.next {
		return
	}
	if s, ok := a.Arm.(*conformal.SFOGD); ok && s.Anchor() {
		a.next, a.anchored = 2*n, true
	}
}

// patience is how often a margin bounds requests without a row, before it is taken to bound them too high to be let in.
const patience = 100

// margin is calibrated for all rows, and for groups of them.
type margin struct {
	groups *conformal.Groups
	all    *arm
	need   int  // rows before a bound is claimed
	seen   int  // rows that were to be bounded, those that it was not given among them
	strict bool // nothing is claimed unless it has been anchored: where it began means nothing
	// How often a group, and anyone, was asked about since the last row.
	asked    map[conformal.Group]int
	askedAll int
}

// newMargin is one of rows, oldest first, whose quantile is start as long as they are fewer than first, and that claims bounds from need
// rows on.
func newMargin(c *Config, start float64, need, first int, rows []conformal.GroupedRow) (*margin, error) {
	alpha := 1 - c.Level
	plain := make([]conformal.Row, len(rows))
	for i := range rows {
		plain[i] = rows[i].Row
	}
	all, err := newArm(alpha, start, c.rows(), max(conformal.MinRows(alpha), first), plain)
	if err != nil {
		return nil, err
	}
	groups, err := conformal.NewGroups(alpha, all, groupArm(c))
	if err != nil {
		return nil, fmt.Errorf("online: margin: %w", err)
	}
	groups.Need(c.speak())
	if err := groups.Regroup(rows); err != nil {
		return nil, fmt.Errorf("online: margin: %w", err)
	}
	return &margin{groups: groups, all: all, need: need, seen: len(rows), asked: map[conformal.Group]int{}}, nil
}

// groupArm makes the arm of a group, which begins at the quantile of all.
func groupArm(c *Config) func(conformal.Group, float64, bool) (conformal.Arm, error) {
	alpha, size, need := 1-c.Level, c.groupRows(), enough(c.Level)
	return func(_ conformal.Group, q float64, _ bool) (conformal.Arm, error) {
		return newArm(alpha, q, size, need, nil)
	}
}

// ready reports whether a bound is claimed.
func (m *margin) ready() bool { return m.seen >= m.need && (m.all.anchored || !m.strict) }

// follow goes on claiming bounds if the one before did, which may be nil.
func (m *margin) follow(before *margin) {
	if before != nil {
		m.seen, m.need, m.all.anchored = max(m.seen, before.seen), before.need, m.all.anchored || before.all.anchored
	}
}

// observe gives the rows of a group one more. Scores are finite or +Inf, so that arms take all of them.
func (m *margin) observe(g conformal.Group, r conformal.Row) {
	delete(m.asked, g)
	m.askedAll = 0
	_ = m.groups.Observe(g, r)
}

// quantile is the group's, or that of all where the group is small. ok is false if none is claimed.
func (m *margin) quantile(g conformal.Group) (q float64, ok bool) {
	if !m.ready() {
		return 0, false
	}
	q, _, ok = m.groups.Quantile(g)
	return q, ok
}

// ask tells that a request of a group was bounded. A group of which nothing comes for long has the margin of all, and if nothing comes
// at all, nor is to come, that falls: bounds that let nobody in are not broken, and nobody would learn that they are too high.
func (m *margin) ask(g conformal.Group, coming bool) {
	if m.asked[g]++; m.asked[g] > patience {
		delete(m.asked, g)
		m.groups.Forget(g)
	}
	if coming {
		return
	}
	if m.askedAll++; m.askedAll > patience {
		m.all.relax()
	}
}

// start is where the margin is, claimed or not.
func (m *margin) start() float64 {
	q, _ := m.all.Quantile()
	return q
}
