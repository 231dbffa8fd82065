package trainer

import (
	"fmt"
	"math"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
)

// Rule says when a new model may take the place of the running one.
type Rule struct {
	Alpha float64 // of the bounds that are compared, in (0, 1)
	// MinRows is how many rows, not censored, it takes to say so, ≥ 1; GroupRows the same for one group, ≥ 1. Smaller groups have no say.
	MinRows, GroupRows int
	// Slack is by how much more coverage may fall short of the level than the running model's does, in [0, 1]; GroupSlack in one group.
	Slack, GroupSlack float64
	// Width is how much wider bounds may be, as a share, ≥ 0.
	Width float64
}

// DefaultRule asks for as many rows as a reported cell has.
func DefaultRule(alpha float64) Rule {
	return Rule{Alpha: alpha, MinRows: 2000, GroupRows: 500, Slack: 0.005, GroupSlack: 0.02, Width: 0.02}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (r *Rule) Validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, key, value, allowed)
	}
	switch {
	case !(r.Alpha > 0 && r.Alpha < 1):
		return bad("alpha", r.Alpha, "between 0 and 1")
	case r.MinRows < 1 || r.GroupRows < 1:
		return bad("min_rows, group_rows", [2]int{r.MinRows, r.GroupRows}, "1 and more")
	case !(r.Slack >= 0 && r.Slack <= 1) || !(r.GroupSlack >= 0 && r.GroupSlack <= 1):
		return bad("slack, group_slack", [2]float64{r.Slack, r.GroupSlack}, "0 to 1")
	case !(r.Width >= 0 && r.Width <= 100):
		return bad("width", r.Width, "0 to 100")
	}
	return nil
}

// Reason is why a model takes the place, or why it does not.
type Reason string

// The reasons; the first three are of a change.
const (
	NotWorse    Reason = "not_worse"
	Restores    Reason = "restores"     // it is wider, but its bounds hold and the champion's do not
	First       Reason = "first"        // there is no running model, and the level holds
	TooFewRows  Reason = "too_few_rows" // to say
	LessBounded Reason = "less_bounded" // it claims no bound for more rows
	Coverage    Reason = "coverage"
	InGroup     Reason = "group_coverage"
	Wider       Reason = "wider"
)

// Outcome is what a comparison found.
type Outcome struct {
	Swap   bool
	Reason Reason
	// Group that the reason is InGroup for.
	Group *conformal.Group
	// Champion is without rows if there was none.
	Champion, Challenger Report
	// Width is the geometric mean of challenger's by champion's bound, over rows that both bound; 1 if there are none.
	Width float64
}

// Compare judges a challenger against the champion, nil for none, on the same rows, which neither has learned from. Coverage counts rows
// whose client left as misses, for both. Groups are by class and deciles. ErrConfig, ErrRow.
func Compare(rows []Row, champion, challenger Bounder, deciles conformal.Deciles, rule Rule) (Outcome, error) {
	o := Outcome{Width: 1}
	if err := rule.Validate(); err != nil {
		return o, err
	}
	var err error
	if o.Challenger, err = Evaluate(rows, challenger, deciles, rule.Alpha); err != nil {
		return o, err
	}
	if champion != nil {
		if o.Champion, err = Evaluate(rows, champion, deciles, rule.Alpha); err != nil {
			return o, err
		}
		o.Width = width(rows, champion, challenger, rule.Alpha)
	}
	o.Reason, o.Group = rule.reason(rows, champion != nil, &o)
	o.Swap = o.Reason == NotWorse || o.Reason == Restores || o.Reason == First
	return o, nil
}

func (r *Rule) reason(rows []Row, champion bool, o *Outcome) (Reason, *conformal.Group) {
	known := 0
	for i := range rows {
		if !rows[i].Censored {
			known++
		}
	}
	if known < r.MinRows {
		return TooFewRows, nil
	}
	if o.Challenger.Unbounded > o.Champion.Unbounded || o.Challenger.All.Coverage.Rows() == 0 {
		return LessBounded, nil
	}
	if o.Champion.All.Coverage.Rows() == 0 { // nothing to be compared with but the level
		switch {
		case o.Challenger.All.High < 1-r.Alpha:
			return Coverage, nil
		case champion:
			return NotWorse, nil
		}
		return First, nil
	}
	if shortfall(&o.Challenger.All) > shortfall(&o.Champion.All)+r.Slack {
		return Coverage, nil
	}
	before := map[conformal.Group]float64{}
	for i := range o.Champion.Groups {
		c := &o.Champion.Groups[i]
		before[*c.Group] = shortfall(c)
	}
	for i := range o.Challenger.Groups {
		c := &o.Challenger.Groups[i]
		was, ok := before[*c.Group]
		if ok && c.Coverage.Rows() >= r.GroupRows && shortfall(c) > was+r.GroupSlack {
			return InGroup, c.Group
		}
	}
	if o.Width <= 1+r.Width {
		return NotWorse, nil
	}
	// Widths compare at equal coverage: a bound that does not hold is not narrow but wrong.
	if shortfall(&o.Champion.All) > r.Slack && o.Challenger.All.High >= 1-r.Alpha {
		return Restores, nil
	}
	return Wider, nil
}

// shortfall is by how much coverage is below the level: more coverage than was asked for is no merit.
func shortfall(c *artifact.Cell) float64 {
	low, _ := c.Coverage.Range()
	return max(0, 1-c.Alpha-low)
}

func width(rows []Row, champion, challenger Bounder, alpha float64) float64 {
	sum, n := 0.0, 0
	for i := range rows {
		a, ok := champion.Bound(&rows[i].Known, alpha)
		if !ok {
			continue
		}
		if b, ok := challenger.Bound(&rows[i].Known, alpha); ok {
			sum += math.Log(b / a)
			n++
		}
	}
	return math.Exp(sum / max(1, float64(n)))
}
