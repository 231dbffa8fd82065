package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/worker/batch"
)

// rungs are the seed's, each of which adds one thing to the one before.
var rungs = []struct {
	name string
	edit func(*batch.Config)
	peak float64 // goodput that the seed measured, the greatest over its rates
	knee float64 // rate at which it saw p99 leave the floor
}{
	{"fifo", func(b *batch.Config) { b.Mode, b.PrefixCache = batch.FIFO, false }, 0.44, 0.5},
	{"static", func(b *batch.Config) {
		b.Mode, b.MaxBatch, b.StaticWait, b.PrefixCache = batch.Static, 8, 50*time.Millisecond, false
	}, 0.55, 0.8},
	{"continuous", func(b *batch.Config) { b.PrefixCache = false }, 0.81, 1},
	{"continuous+cache", func(*batch.Config) {}, 1.23, 1.9},
}

const (
	// grossError is a guard against gross changes and says nothing about how far the simulator is to be believed: peaks differ from the
	// seed's by up to 33 %: its table of step times is of an empty pool (docs/experiments/ladders.md).
	grossError = 0.35
	kneeFactor = 1.35
)

// climb returns each rung's mean goodput, within 4 s, at each rate, over three seeds of three minutes.
func climb(t testing.TB, rates []float64) [][]float64 {
	t.Helper()
	out := make([][]float64, len(rungs))
	for i, rung := range rungs {
		for _, rate := range rates {
			good := 0
			for seed := uint64(1); seed <= 3; seed++ {
				c := seedConfig(t, rate, 3*time.Minute, seed)
				c.Warmup, c.Tail, c.ReadTimeout = 25*time.Second, 5*time.Second, 5*time.Minute
				c.Batch.Order = batch.PrefillFirst
				rung.edit(&c.Batch)
				run, rows := simulate(t, c)
				for k := range rows {
					if rows[k].Phase == record.Measure && run.Good(&rows[k]) {
						good++
					}
				}
			}
			out[i] = append(out[i], float64(good)/3/150)
		}
		t.Logf("%-16s %.2f", rung.name, out[i])
	}
	return out
}

// The seed's ladder has its order in virtual time: at every rate each rung serves at least as many in time as the one below it (at
// 2 % of the rate, few are served by any), peaks higher, and no earlier. The knees, the greatest rates of the grid at which four of
// five are served in time, are the seed's: no other rates of the grid are within kneeFactor of them, but for static's.
func TestSeedLadder(t *testing.T) {
	rates := []float64{0.6, 1, 1.4, 1.9, 2.6, 4}
	goodput := climb(t, rates)
	at := func(i int) int { return slices.Index(goodput[i], slices.Max(goodput[i])) }
	for i, rung := range rungs {
		peak := goodput[i][at(i)]
		if peak < (1-grossError)*rung.peak || peak > (1+grossError)*rung.peak {
			t.Errorf("%s: peak goodput %.2f/s, the seed's was %.2f", rung.name, peak, rung.peak)
		}
		knee := 0.0
		for k, rate := range rates {
			if goodput[i][k] >= 0.8*rate {
				knee = rate
			}
		}
		if ratio := max(knee/rung.knee, rung.knee/knee); !(ratio <= kneeFactor) {
			t.Errorf("%s: the knee is at %g/s, the seed's was at about %g", rung.name, knee, rung.knee)
		}
		if i == 0 {
			continue
		}
		for k, rate := range rates {
			if goodput[i][k] < goodput[i-1][k]-0.02*rate {
				t.Errorf("at %g/s %s serves %.3f/s in time, %s %.3f", rate, rung.name, goodput[i][k], rungs[i-1].name, goodput[i-1][k])
			}
		}
		if below := goodput[i-1][at(i-1)]; peak <= below || at(i) < at(i-1) {
			t.Errorf("%s peaks with %.2f/s at %g/s, %s with %.2f/s at %g/s", rung.name, peak, rates[at(i)], rungs[i-1].name, below, rates[at(i-1)])
		}
	}
}
