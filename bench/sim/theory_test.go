package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/worker/batch"
)

// cut is n requests of one token whose prompts are so long that they take exactly as long as times says.
func cut(n int, draw func() int) (source, []int) {
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = draw()
	}
	shared := make([]int32, slices.Max(lengths)) // nothing is cached: what is in it does not matter
	return func(i int) workload.Request {
		return workload.Request{Prompt: slices.Clone(shared[:lengths[i]]), Cap: 1, Output: 1}
	}, lengths
}

const tokenTime = 10 * time.Microsecond

// oneToken is a server with a number of workers, each of which takes 10 µs for each token of a prompt.
func oneToken(n, workers int, rate float64, seed uint64, draw func(*rand.Rand) int) (Config, []int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	src, lengths := cut(n, func() int { return draw(rng) })
	return Config{
		Source: src, Arrivals: arrival.Poisson{}.Times(seed, rate, 1000*time.Hour), Requests: n, Length: 1000 * time.Hour, Drain: Forever, Workers: workers,
		Profile: engine(func(prefill, decodes, _ int) time.Duration {
			if decodes > 0 {
				panic("nothing decodes")
			}
			return time.Duration(prefill) * tokenTime
		}),
		Batch: batch.Config{PageTokens: 16, KVPages: 4096, Sequences: 1, MaxBatch: 1, BatchTokens: 1 << 16, ChunkTokens: 1 << 16, ContextTokens: 1 << 16, Mode: batch.FIFO},
	}, lengths
}

// Nobody waits while a worker is idle, nobody is served before another who came before, and no work is made up: with any number
// of workers, each start is that of Kiefer and Wolfowitz (1955).
func TestWorkConservation(t *testing.T) {
	for _, workers := range []int{1, 3, 8} {
		c, lengths := oneToken(5000, workers, 900*float64(workers), 5, func(rng *rand.Rand) int { return 1 + int(rng.ExpFloat64()*100) })
		_, rows := simulate(t, c)
		free := make([]time.Duration, workers)
		for i := range rows {
			r := &rows[i]
			next := slices.Index(free, slices.Min(free))
			start := max(r.Intended, free[next])
			free[next] = start + time.Duration(lengths[i])*tokenTime
			if r.Queued != start-r.Intended || r.E2E != free[next]-r.Intended {
				t.Fatalf("%d workers, request %d: started after %v and ended after %v, want %v and %v", workers, i, r.Queued, r.E2E, start-r.Intended, free[next]-r.Intended)
			}
		}
	}
}

// The mean waits of M/M/1 and M/D/1 (Pollaczek and Khinchin: λ · mean square of the service / 2(1-ρ)), and Little's law as those
// see it who arrive (PASTA).
func TestQueueingTheory(t *testing.T) {
	for name, draw := range map[string]func(*rand.Rand) int{
		"M/D/1": func(*rand.Rand) int { return 50 },
		"M/M/1": func(rng *rand.Rand) int { return int(math.Ceil(rng.ExpFloat64() * 50)) },
	} {
		t.Run(name, func(t *testing.T) {
			const n, rate = 100_000, 1200
			c, lengths := oneToken(n, 1, rate, 7, draw)
			inSystem := 0
			c.Admit = func(a *Arrival) Decision {
				inSystem += a.Pool.Waiting + len(a.Pool.Workers[0].Requests)
				return Decision{}
			}
			_, rows := simulate(t, c)
			service, square, wait := 0.0, 0.0, 0.0
			for i := range rows {
				x := float64(lengths[i]) * tokenTime.Seconds()
				service, square, wait = service+x/n, square+x*x/n, wait+rows[i].Queued.Seconds()/n
			}
			lambda := n / rows[n-1].Intended.Seconds()
			rho := lambda * service
			if want := lambda * square / 2 / (1 - rho); math.Abs(wait/want-1) > 0.04 {
				t.Errorf("mean wait %.3g s, want %.3g s at a load of %.3f", wait, want, rho)
			} else {
				t.Logf("load %.3f: mean wait %.4g s, theory %.4g s", rho, wait, want)
			}
			l, want := float64(inSystem)/n, lambda*(wait+service)
			if math.Abs(l/want-1) > 0.02 {
				t.Errorf("%.4f in the system, by Little's law %.4f", l, want)
			}
			t.Logf("%.4f in the system, by Little's law %.4f", l, want)
		})
	}
}
