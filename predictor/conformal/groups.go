package conformal

import (
	"fmt"
	"maps"
	"slices"
)

// Groups runs one arm per group beside one over all rows: the online form of Mondrian.
type Groups struct {
	need   int // rows before a group speaks for itself
	all    Arm
	own    map[Group]Arm
	newArm func(g Group, q float64, ok bool) (Arm, error)
}

// NewGroups takes the marginal arm and a function that makes the arm of a group when its first row comes; it is told the quantile of
// the marginal at that moment, and calls no method of Groups. A group answers for itself once its arm holds MinRows(alpha) rows, so
// windows must be at least as long. ErrAlpha.
func NewGroups(alpha float64, all Arm, newArm func(g Group, q float64, ok bool) (Arm, error)) (*Groups, error) {
	if err := checkAlpha(alpha); err != nil {
		return nil, err
	}
	return &Groups{need: MinRows(alpha), all: all, own: map[Group]Arm{}, newArm: newArm}, nil
}

// Need raises the number of rows from which a group speaks for itself to rows, if that is more; it never falls.
func (m *Groups) Need(rows int) { m.need = max(m.need, rows) }

// GroupedRow is a row and its group.
type GroupedRow struct {
	Group Group
	Row   Row
}

// Regroup forgets the groups' arms and makes them anew of rows, oldest first; the marginal stays as it is. Errors are those of Observe;
// the rows from the one in error on are missing then.
func (m *Groups) Regroup(rows []GroupedRow) error {
	clear(m.own)
	for i := range rows {
		if err := m.observe(rows[i].Group, rows[i].Row); err != nil {
			return err
		}
	}
	return nil
}

// Forget drops a group's arm, so that the marginal answers for it until a new one has rows enough.
func (m *Groups) Forget(g Group) { delete(m.own, g) }

// Quantile is the group's, or with own false the marginal's. ok is false if there is no bound at this level now. See Arm.
func (m *Groups) Quantile(g Group) (q float64, own, ok bool) {
	if a := m.own[g]; a != nil && a.Len() >= m.need {
		q, ok = a.Quantile()
		return q, true, ok
	}
	q, ok = m.all.Quantile()
	return q, false, ok
}

// Observe gives a row to its group's arm and to the marginal one. Errors are those of Arm.Observe and of making an arm; on an error
// of the score both are unchanged.
func (m *Groups) Observe(g Group, r Row) error {
	if err := m.observe(g, r); err != nil {
		return err
	}
	return m.all.Observe(r)
}

// observe gives a row to its group's arm, which is made if there is none.
func (m *Groups) observe(g Group, r Row) error {
	a := m.own[g]
	if a == nil {
		q, ok := m.all.Quantile()
		var err error
		if a, err = m.newArm(g, q, ok); err != nil {
			return err
		}
		m.own[g] = a
	}
	return a.Observe(r)
}

// Marginal is the arm over all rows. It is owned by Groups.
func (m *Groups) Marginal() Arm { return m.all }

// Arm is the arm of a group, nil before its first row. It is owned by Groups.
func (m *Groups) Arm(g Group) Arm { return m.own[g] }

// Rescore does so in every arm; on an error those in which it had been done stay rescored.
func (m *Groups) Rescore(score func(Row) float64) error {
	if err := m.all.Rescore(score); err != nil {
		return err
	}
	for _, g := range m.sorted() {
		if err := m.own[g].Rescore(score); err != nil {
			return fmt.Errorf("group %+v: %w", g, err)
		}
	}
	return nil
}

// GroupsState is the state of Groups for an artifact.
type GroupsState struct {
	All    State        `json:"all"`
	Groups []GroupState `json:"groups"` // in ascending order
}

// GroupState is the state of one group's arm.
type GroupState struct {
	Group Group `json:"group"`
	Arm   State `json:"arm"`
}

// Export is a copy of the state.
func (m *Groups) Export() GroupsState {
	s := GroupsState{All: m.all.Export()}
	for _, g := range m.sorted() {
		s.Groups = append(s.Groups, GroupState{Group: g, Arm: m.own[g].Export()})
	}
	return s
}

// ImportGroups makes the Groups that Export was called on; newArm is as for NewGroups. ErrState.
func ImportGroups(s GroupsState, newArm func(g Group, q float64, ok bool) (Arm, error)) (*Groups, error) {
	all, err := Import(s.All)
	if err != nil {
		return nil, err
	}
	m, err := NewGroups(s.All.Alpha, all, newArm)
	if err != nil {
		return nil, err
	}
	for _, g := range s.Groups {
		if m.own[g.Group], err = Import(g.Arm); err != nil {
			return nil, fmt.Errorf("group %+v: %w", g.Group, err)
		}
	}
	return m, nil
}

func (m *Groups) sorted() []Group { return slices.SortedFunc(maps.Keys(m.own), Group.compare) }
