package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cadence-slo/cadence/bench/stat"
)

// Comparison is an arm against the one before, or against the baseline, over pairs of runs.
type Comparison struct {
	Before  string      `json:"before"`
	After   string      `json:"after"`
	Rate    float64     `json:"rate"`          // 0: every rate that both arms have; a pair is a seed, its values means over its runs
	Across  bool        `json:"across_blocks"` // the arms have no block in common: the machine may have changed between them
	Goodput stat.Paired `json:"goodput"`
	TTFT99  stat.Paired `json:"ttft_p99"`
	E2E99   stat.Paired `json:"e2e_p99"`
	// Whether some value before, some value after is a lower bound, so that the ratio is no more than a bound itself.
	TTFT99Lower [2]bool `json:"ttft_p99_lower_bounds"`
	E2E99Lower  [2]bool `json:"e2e_p99_lower_bounds"`
}

// pairs returns the runs of two cells that belong together: same seed and block, or same seed where the cells have no
// block in common. Replicates are matched in order of execution.
func pairs(a, b *Cell) (out [][2]*Run, across bool) {
	if a == nil || b == nil {
		return nil, false
	}
	type key struct {
		seed         uint64
		block, count int
	}
	index := func(c *Cell, block func(*Run) int) map[key]*Run {
		m, seen := map[key]*Run{}, map[key]int{}
		for _, run := range c.Runs {
			k := key{seed: run.Seed, block: block(run)}
			seen[k]++
			k.count = seen[k]
			m[k] = run
		}
		return m
	}
	match := func(block func(*Run) int) {
		before, after := index(a, block), index(b, block)
		for k, run := range before {
			if other := after[k]; other != nil {
				out = append(out, [2]*Run{run, other})
			}
		}
	}
	if match(func(r *Run) int { return r.Block }); len(out) == 0 {
		across = true
		match(func(*Run) int { return 0 })
	}
	slices.SortFunc(out, func(x, y [2]*Run) int { return compareRuns(nil, x[0], y[0]) })
	return out, across && len(out) > 0
}

// compared returns the pairs of arms that are compared: each with the one before, or with the baseline.
func (r *Report) compared() [][2]string {
	var out [][2]string
	for i, arm := range r.Arms {
		switch b := r.options.Baseline; {
		case b == "" && i > 0:
			out = append(out, [2]string{r.Arms[i-1], arm})
		case b != "" && arm != b:
			out = append(out, [2]string{b, arm})
		}
	}
	return out
}

// Comparisons compares arms at every rate that both have, and over all rates if there are several.
func (r *Report) Comparisons() ([]Comparison, error) {
	var out []Comparison
	for _, arms := range r.compared() {
		before, after := arms[0], arms[1]
		seeds := map[uint64][][2]*Run{}
		rates, crossing := 0, false
		for _, rate := range r.Rates {
			p, across := pairs(r.Cell(before, rate), r.Cell(after, rate))
			if len(p) == 0 {
				continue
			}
			rates++
			crossing = crossing || across
			here := map[uint64][][2]*Run{}
			for _, x := range p {
				here[x[0].Seed] = append(here[x[0].Seed], x)
				seeds[x[0].Seed] = append(seeds[x[0].Seed], x)
			}
			c, err := r.compare(bySeed(here))
			if err != nil {
				return nil, err
			}
			c.Before, c.After, c.Rate, c.Across = before, after, rate, across
			out = append(out, c)
		}
		if rates > 1 {
			c, err := r.compare(bySeed(seeds))
			if err != nil {
				return nil, err
			}
			c.Before, c.After, c.Across = before, after, crossing
			out = append(out, c)
		}
	}
	return out, nil
}

// bySeed returns pairs of runs by seed, in order of the seeds. Replicates of one seed are no independent samples: they
// meet the same requests at the same times, and count as one pair.
func bySeed(pairs map[uint64][][2]*Run) [][][2]*Run {
	units := make([][][2]*Run, 0, len(pairs))
	for _, seed := range slices.Sorted(maps.Keys(pairs)) {
		units = append(units, pairs[seed])
	}
	return units
}

// compare compares over units, each of which counts as one pair: the mean over its pairs of runs, of latencies the
// geometric one, so that no rate drowns the others.
func (r *Report) compare(units [][][2]*Run) (Comparison, error) {
	var c Comparison
	for _, f := range []struct {
		m     Metric
		out   *stat.Paired
		lower *[2]bool
	}{{Goodput, &c.Goodput, new([2]bool)}, {TTFT99, &c.TTFT99, &c.TTFT99Lower}, {E2E99, &c.E2E99, &c.E2E99Lower}} {
		var a, b []float64
		for _, unit := range units {
			var x, y []float64
			for _, p := range unit {
				before, after := f.m.Of(&p[0].Summary), f.m.Of(&p[1].Summary)
				if math.IsNaN(before) || math.IsNaN(after) {
					continue // both sides of a unit are means over the same runs
				}
				x, y = append(x, before), append(y, after)
				for i := range p {
					f.lower[i] = f.lower[i] || f.m.lower(&p[i].Summary)
				}
			}
			if len(x) > 0 {
				mean := arithmetic
				if !f.m.Higher {
					mean = geometric
				}
				a, b = append(a, mean(x)), append(b, mean(y))
			}
		}
		p, err := stat.PairedBootstrap(a, b, r.options.Resamples, r.options.Seed)
		if err != nil {
			return c, err
		}
		*f.out = p
	}
	return c, nil
}

func arithmetic(x []float64) float64 { return stat.Over(x...).Mean }

func geometric(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(x)))
}

// Worsening is a metric that an arm makes worse than the one before.
type Worsening struct {
	Before     string  `json:"before"`
	After      string  `json:"after"`
	Metric     string  `json:"metric"`
	Unit       string  `json:"unit"`
	Rate       float64 `json:"rate"` // at which it is worst
	From       float64 `json:"from"` // mean over the pairs of runs there
	To         float64 `json:"to"`
	Change     float64 `json:"change_ratio"`   // (To − From) / From
	Pairs      int     `json:"pairs"`          // of runs there that have the metric
	PairsWorse int     `json:"pairs_worse"`    // of those, in which it is worse at all
	Affected   int     `json:"rates_affected"` // rates at which it is worse by more than the threshold
	Rates      int     `json:"rates"`          // at which both arms have the metric
	lower      [2]bool
	survivors  [2]bool
}

// Worsenings returns every metric that is worse than the arm before by more than the threshold at some rate, the worst of
// each pair of arms first.
func (r *Report) Worsenings() []Worsening {
	var out []Worsening
	for _, arms := range r.compared() {
		var rows []Worsening
		for _, m := range Metrics {
			w := Worsening{Before: arms[0], After: arms[1], Metric: m.Name, Unit: m.Unit}
			worst := r.options.Worse
			for _, rate := range r.Rates {
				p, _ := pairs(r.Cell(w.Before, rate), r.Cell(w.After, rate))
				before, after := &Cell{}, &Cell{}
				for _, x := range p {
					before.Runs, after.Runs = append(before.Runs, x[0]), append(after.Runs, x[1])
				}
				from, to := before.Over(m), after.Over(m)
				if from.Count == 0 || to.Count == 0 {
					continue
				}
				w.Rates++
				if from.Mean == 0 {
					continue // nothing can be worse than none, and a latency of 0 is none
				}
				change := (to.Mean - from.Mean) / from.Mean
				loss := change
				if m.Higher {
					loss = -change
				}
				if loss > r.options.Worse {
					w.Affected++
				}
				if loss > worst {
					worst = loss
					w.PairsWorse, w.Pairs = consistent(m, p)
					w.Rate, w.From, w.To, w.Change, w.lower = rate, from.Mean, to.Mean, change, [2]bool{from.Lower, to.Lower}
					w.survivors = [2]bool{from.Survivors, to.Survivors}
				}
			}
			if w.Affected > 0 {
				rows = append(rows, w)
			}
		}
		// Where nothing is shed, the attainment of those not shed says the same again.
		rows = slices.DeleteFunc(rows, func(w Worsening) bool {
			return w.Metric == Kept.Name && slices.ContainsFunc(rows, func(o Worsening) bool {
				return o.Metric == Attainment.Name && o.Rate == w.Rate && o.From == w.From && o.To == w.To
			})
		})
		slices.SortStableFunc(rows, func(a, b Worsening) int { return cmp.Compare(math.Abs(b.Change), math.Abs(a.Change)) })
		out = append(out, rows...)
	}
	return out
}

// consistent counts the pairs that have a metric, and those of them in which the second is worse.
func consistent(m Metric, pairs [][2]*Run) (worse, all int) {
	for _, p := range pairs {
		from, to := m.Of(&p[0].Summary), m.Of(&p[1].Summary)
		if math.IsNaN(from) || math.IsNaN(to) {
			continue
		}
		all++
		if from != to && (to < from) == m.Higher {
			worse++
		}
	}
	return worse, all
}

// Anchor is a metric of an arm at a rate that was run with the same seeds in several blocks.
type Anchor struct {
	Arm    string  `json:"arm"`
	Rate   float64 `json:"rate"`
	Metric string  `json:"metric"`
	Unit   string  `json:"unit"`
	Blocks []int   `json:"blocks"`
	Values []Value `json:"values"` // of each block, over the seeds that every block has
}

// Anchors returns what was run in more than one block.
func (r *Report) Anchors() []Anchor {
	var out []Anchor
	for _, m := range []Metric{Goodput, E2E99} {
		for _, arm := range r.Arms {
			for _, rate := range r.Rates {
				if blocks := repeated(r.Cell(arm, rate)); len(blocks) > 1 {
					a := Anchor{Arm: arm, Rate: rate, Metric: m.Name, Unit: m.Unit, Blocks: slices.Sorted(maps.Keys(blocks))}
					for _, b := range a.Blocks {
						a.Values = append(a.Values, (&Cell{Runs: blocks[b]}).Over(m))
					}
					out = append(out, a)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Anchor) int { return slices.Index(r.Arms, a.Arm) - slices.Index(r.Arms, b.Arm) })
	return out
}

// repeated returns the runs of a cell by block, of the blocks that have a seed in common with the first; nil if there is
// one only.
func repeated(c *Cell) map[int][]*Run {
	if c == nil {
		return nil
	}
	blocks := map[int][]*Run{}
	for _, run := range c.Runs {
		blocks[run.Block] = append(blocks[run.Block], run)
	}
	has := func(runs []*Run, seed uint64) bool {
		return slices.ContainsFunc(runs, func(r *Run) bool { return r.Seed == seed })
	}
	first := blocks[slices.Min(slices.Collect(maps.Keys(blocks)))]
	for b, runs := range blocks {
		if !slices.ContainsFunc(runs, func(r *Run) bool { return has(first, r.Seed) }) {
			delete(blocks, b)
		}
	}
	for b, runs := range blocks {
		blocks[b] = slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool {
			for _, other := range blocks {
				if !has(other, r.Seed) {
					return true
				}
			}
			return false
		})
	}
	for _, runs := range blocks {
		if len(runs) == 0 {
			return nil
		}
	}
	return blocks
}

// Canaries sums up the probes that ran before an arm's runs, in tokens/s.
type Canaries struct {
	Arm     string      `json:"arm"` // empty: all
	Rate    stat.Spread `json:"tokens_per_second"`
	Missing int         `json:"failed"` // runs whose probe failed; runs that had none do not count
}

// Ratio is how far the fastest probe is from the slowest, as a part of the mean.
func (c *Canaries) Ratio() float64 {
	if c.Rate.Mean == 0 {
		return 0
	}
	return (c.Rate.Max - c.Rate.Min) / c.Rate.Mean
}

// CanaryArms returns the probes by arm, and of all arms together last; none if no run had one.
func (r *Report) CanaryArms() []Canaries {
	var out []Canaries
	sum := func(arm string, runs []*Run) {
		c := Canaries{Arm: arm}
		var rates []float64
		for _, run := range runs {
			if run.Canary == nil {
				continue
			}
			if run.Canary.Err != "" || run.Canary.TokensRate <= 0 {
				c.Missing++
				continue
			}
			rates = append(rates, run.Canary.TokensRate)
		}
		if c.Rate = stat.Over(rates...); c.Rate.Count+c.Missing > 0 {
			out = append(out, c)
		}
	}
	for _, arm := range r.Arms {
		sum(arm, slices.DeleteFunc(slices.Clone(r.Runs), func(run *Run) bool { return run.Arm != arm }))
	}
	sum("", r.Runs)
	return out
}

// Missing lists the cells and seeds that other arms have and this one does not, as text.
func (r *Report) Missing() []string {
	seeds := map[uint64]bool{}
	for _, seed := range r.seeds {
		seeds[seed] = true
	}
	for _, run := range r.Runs {
		seeds[run.Seed] = true
	}
	var out []string
	for _, arm := range r.Arms {
		for _, rate := range r.Rates {
			c := r.Cell(arm, rate)
			if c == nil {
				out = append(out, fmt.Sprintf("%s at %s req/s", arm, number(rate)))
				continue
			}
			for _, seed := range slices.Sorted(maps.Keys(seeds)) {
				if !slices.ContainsFunc(c.Runs, func(run *Run) bool { return run.Seed == seed }) {
					out = append(out, fmt.Sprintf("%s at %s req/s, seed %d", arm, number(rate), seed))
				}
			}
		}
	}
	return out
}
