package admission

import (
	"context"
	"fmt"

	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/sim"
)

// Choice is how an arm's constant was chosen.
type Choice struct {
	Arm      string    `json:"arm"`
	Means    string    `json:"constant_is"` // empty: it has none
	Constant float64   `json:"constant"`
	Grid     []float64 `json:"grid"`
	// Scores are, for each of the grid, the mean over loads of goodput by the best that any arm had there.
	Scores []float64 `json:"scores"`
}

// Peak is the best goodput without admission.
type Peak struct {
	Goodput float64 `json:"goodput_per_second"`
	Rate    float64 `json:"rate"` // offered there
}

// peak raises the offered rate until goodput has fallen to half of the best.
func (b *bench) peak(ctx context.Context) (Peak, error) {
	const first, growth, most = 0.25, 1.15, 100
	var best Peak
	rate := first
	for range most {
		var jobs []job
		for _, seed := range seeds(tuneSeed+1, b.o.TuneSeeds) {
			jobs = append(jobs, job{arm: &every[0], rate: rate, seed: seed, length: b.o.TuneLength})
		}
		b.tell(0, len(jobs))
		runs, err := b.all(ctx, jobs)
		if err != nil {
			return Peak{}, err
		}
		switch g := mean(runs); {
		case g > best.Goodput:
			best = Peak{Goodput: g, Rate: rate}
		case g < best.Goodput/2:
			return best, nil
		}
		rate *= growth
	}
	return Peak{}, fmt.Errorf("%w: goodput without admission has no peak up to %.3g requests/s", ErrConfig, rate)
}

// What is fitted is fitted to a run at a load below the knee, which is longer than the others.
const (
	fitLoad   = 0.7
	fitLength = 3
)

// fit does the run that arms are fitted to.
func (b *bench) fit(ctx context.Context, rate float64) error {
	cfg, err := b.config(rate, fitSeed, fitLength*b.o.Length)
	if err != nil {
		return err
	}
	seen, err := control.Collect(&cfg, control.Options{Profile: b.o.Profile, Seed: fitSeed})
	if err != nil {
		return err
	}
	if _, err := sim.Run(ctx, cfg); err != nil {
		return fmt.Errorf("fit: %w", err)
	}
	b.seen = seen
	return ctx.Err()
}

// tune chooses a constant for each arm: the one with the highest mean over loads of goodput by the best that any arm had there.
func (b *bench) tune(ctx context.Context, arms []*arm, rates []float64) ([]Choice, error) {
	jobs := b.tuning(arms, rates)
	runs, err := b.all(ctx, jobs)
	if err != nil {
		return nil, err
	}
	goodput := make([]float64, 0, len(runs)/b.o.TuneSeeds) // by arm, constant and rate
	best := make([]float64, len(rates))
	for i := 0; i < len(runs); i += b.o.TuneSeeds {
		g := mean(runs[i : i+b.o.TuneSeeds])
		at := len(goodput) % len(rates)
		goodput, best[at] = append(goodput, g), max(best[at], g)
	}
	var out []Choice
	for _, a := range arms {
		c := Choice{Arm: a.name, Means: a.means, Grid: a.constants(b.o.Quick)}
		top := -1.0
		for _, constant := range c.Grid {
			score := 0.0
			for i, g := range goodput[:len(rates)] {
				if best[i] > 0 {
					score += g / best[i]
				}
			}
			goodput = goodput[len(rates):]
			score /= float64(len(rates))
			c.Scores = append(c.Scores, score)
			if score > top {
				top, c.Constant = score, constant
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// tuning are the runs to tune on, in order of arm, constant, rate and seed.
func (b *bench) tuning(arms []*arm, rates []float64) []job {
	var jobs []job
	for _, a := range arms {
		for _, constant := range a.constants(b.o.Quick) {
			for _, rate := range rates {
				for _, seed := range seeds(tuneSeed+1, b.o.TuneSeeds) {
					jobs = append(jobs, job{arm: a, constant: constant, rate: rate, seed: seed, length: b.o.TuneLength})
				}
			}
		}
	}
	return jobs
}
