package conformal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// ErrRuns says that an interval clustered by run was asked of fewer than two runs with rows.
var ErrRuns = errors.New("conformal: fewer than two runs")

// Coverage counts what became of issued bounds.
type Coverage struct {
	Hits     int `json:"hits"`
	Misses   int `json:"misses"`
	Censored int `json:"censored"` // the client left before the bound had passed
}

// Add counts a verdict; NoVerdict counts nothing.
func (c *Coverage) Add(v Verdict) {
	switch v {
	case Hit:
		c.Hits++
	case Miss:
		c.Misses++
	case Censored:
		c.Censored++
	}
}

// Plus is the sum of both.
func (c Coverage) Plus(o Coverage) Coverage {
	return Coverage{Hits: c.Hits + o.Hits, Misses: c.Misses + o.Misses, Censored: c.Censored + o.Censored}
}

// Rows is the number of rows, censored ones among them.
func (c Coverage) Rows() int { return c.Hits + c.Misses + c.Censored }

// Range is what coverage, 0 … 1, can have been: if all censored rows had missed, and if all had hit. Without rows it is [0, 1].
func (c Coverage) Range() (low, high float64) {
	n := float64(c.Rows())
	if n == 0 {
		return 0, 1
	}
	return float64(c.Hits) / n, float64(c.Hits+c.Censored) / n
}

// Wilson is an interval for coverage at a confidence in (0, 1), such as 0.95, from the lower end with all censored rows missed to the
// upper end with all hit. It takes rows for independent, which those of one run are not: see Clustered. ErrAlpha for the confidence.
func (c Coverage) Wilson(confidence float64) (low, high float64, err error) {
	if err := checkAlpha(confidence); err != nil {
		return 0, 0, err
	}
	n, z := float64(c.Rows()), normalQuantile(confidence)
	pl, ph := c.Range()
	low, _ = wilson(pl, n, z)
	_, high = wilson(ph, n, z)
	return low, high, nil
}

// Clustered is Wilson's interval over runs, which are independent where rows of a run are not. The rows count for n/deff, with deff ≥ 1
// the variance of the ratio Σhits/Σrows between runs over that of independent rows (Kish 1965, §5.4), and Student's t on runs−1 degrees
// of freedom takes the place of the normal quantile. ErrAlpha for the confidence; ErrRuns below two runs with rows.
func Clustered(runs []Coverage, confidence float64) (low, high float64, err error) {
	if err := checkAlpha(confidence); err != nil {
		return 0, 0, err
	}
	var sum Coverage
	m := 0
	for _, r := range runs {
		if r.Rows() > 0 {
			sum = sum.Plus(r)
			m++
		}
	}
	if m < 2 {
		return 0, 0, fmt.Errorf("%w: %d", ErrRuns, m)
	}
	t := studentQuantile(confidence, m-1)
	pl, ph := sum.Range()
	nl := effective(runs, m, pl, func(c Coverage) int { return c.Hits })
	nh := effective(runs, m, ph, func(c Coverage) int { return c.Hits + c.Censored })
	low, _ = wilson(pl, nl, t)
	_, high = wilson(ph, nh, t)
	return low, high, nil
}

// effective is how many independent rows the m runs with rows are worth, whose pooled share of hits is p.
func effective(runs []Coverage, m int, p float64, hits func(Coverage) int) float64 {
	n, square := 0.0, 0.0
	for _, r := range runs {
		d := float64(hits(r)) - p*float64(r.Rows())
		square += d * d
		n += float64(r.Rows())
	}
	deff := 1.0
	if v := p * (1 - p); v > 0 {
		deff = max(1, square*float64(m)/float64(m-1)/n/v)
	}
	return n / deff
}

// wilson is the score interval (Wilson 1927) of a share p of n rows, n real.
func wilson(p, n, z float64) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	z2 := z * z / n
	mid := (p + z2/2) / (1 + z2)
	half := math.Sqrt(z2) / (1 + z2) * math.Sqrt(p*(1-p)+z2/4)
	return max(0, min(mid-half, p)), min(1, max(mid+half, p))
}

// normalQuantile is the two-sided one: 1.96 for 0.95.
func normalQuantile(confidence float64) float64 { return math.Sqrt2 * math.Erfinv(confidence) }

// studentQuantile is the two-sided one for ν degrees of freedom: exact for 1 and 2, beyond by the expansion in 1/ν (Abramowitz and
// Stegun 26.7.5), which at 0.95 is within 0.2 %.
func studentQuantile(confidence float64, nu int) float64 {
	switch nu {
	case 1:
		return math.Tan(math.Pi / 2 * confidence)
	case 2:
		return confidence * math.Sqrt(2/(1-confidence*confidence))
	}
	z, v := normalQuantile(confidence), float64(nu)
	z2 := z * z
	return z + z*(z2+1)/(4*v) +
		z*(z2*(5*z2+16)+3)/(96*v*v) +
		z*(z2*(z2*(3*z2+19)+17)-15)/(384*v*v*v) +
		z*(z2*(z2*(z2*(79*z2+776)+1482)-1920)-945)/(92160*v*v*v*v)
}

// Cell is the rows of one group in one run.
type Cell struct {
	Run   int   `json:"run"`
	Group Group `json:"group"`
}

func (c Cell) compare(o Cell) int { return cmp.Or(cmp.Compare(c.Run, o.Run), c.Group.compare(o.Group)) }

// Tally is coverage per run and group. Make it with make.
type Tally map[Cell]Coverage

// Add counts a resolution of a run; one without a verdict counts nothing.
func (t Tally) Add(run int, r Resolution) {
	if r.Verdict == NoVerdict {
		return
	}
	c := t[Cell{run, r.Group}]
	c.Add(r.Verdict)
	t[Cell{run, r.Group}] = c
}

// Runs is the coverage of the group per run, in order of the runs, for Clustered.
func (t Tally) Runs(g Group) []Coverage {
	return t.runs(func(o Group) bool { return o == g })
}

// Marginal is the coverage over all groups per run, in order of the runs, for Clustered.
func (t Tally) Marginal() []Coverage {
	return t.runs(func(Group) bool { return true })
}

// Groups are those with rows, in ascending order.
func (t Tally) Groups() []Group {
	seen := map[Group]bool{}
	for c := range t {
		seen[c.Group] = true
	}
	return slices.SortedFunc(maps.Keys(seen), Group.compare)
}

func (t Tally) runs(in func(Group) bool) []Coverage {
	var out []Coverage
	last := 0
	for _, c := range slices.SortedFunc(maps.Keys(t), Cell.compare) {
		if !in(c.Group) {
			continue
		}
		if len(out) == 0 || c.Run != last {
			out, last = append(out, Coverage{}), c.Run
		}
		out[len(out)-1] = out[len(out)-1].Plus(t[c])
	}
	return out
}

// Total is the sum of runs.
func Total(runs []Coverage) Coverage {
	var sum Coverage
	for _, r := range runs {
		sum = sum.Plus(r)
	}
	return sum
}
