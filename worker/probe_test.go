package worker_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

// virtual is an engine whose steps take no time but on its own clock, as long as a profile says, give or take noise.
type virtual struct {
	*mock.Backend
	profile *profile.Profile
	noise   func() float64
	clock   time.Duration
	longest time.Duration // step
}

func (v *virtual) now() time.Duration { return v.clock }

func (v *virtual) Step(b *batch.Batch, rows []batch.Row) error {
	took := time.Duration(float64(v.profile.Step(b.PrefillTokens, b.Decodes, b.ContextTokens)) * v.noise())
	v.clock += took
	v.longest = max(v.longest, took)
	return v.Backend.Step(b, rows)
}

func newVirtual(t *testing.T, p *profile.Profile, change func(*mock.Config)) *virtual {
	t.Helper()
	c := mock.FreeConfig()
	if change != nil {
		change(&c)
	}
	b, err := mock.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := b.Cells(); n != 0 {
			t.Errorf("%d cells are left in the engine", n)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &virtual{Backend: b, profile: p, noise: func() float64 { return 1 }}
}

func planOf(b worker.Backend, change func(*worker.Config)) batch.Config {
	c := worker.DefaultConfig()
	if change != nil {
		change(&c)
	}
	return c.Planner(b.Info())
}

func opened(t *testing.T, name string) *profile.Profile {
	t.Helper()
	p, err := profile.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// like checks that a measured profile says what the true one does, wherever a worker's steps may be.
func like(t *testing.T, got, want *profile.Profile, part float64) {
	t.Helper()
	for _, s := range [][3]int{{16, 0, 16}, {64, 0, 64}, {256, 0, 256}, {256, 0, 384}, {0, 1, 20}, {0, 1, 400}, {0, 2, 50}, {0, 3, 60}, {0, 8, 200},
		{0, 16, 400}, {0, 24, 900}, {0, 32, 1200}, {64, 1, 100}, {64, 8, 300}, {128, 16, 700}} {
		g, w := got.Step(s[0], s[1], s[2]), want.Step(s[0], s[1], s[2])
		if e := float64(g)/float64(w) - 1; math.Abs(e) > part {
			t.Errorf("%d of prefill, %d decode, %d held: %v, want %v (%+.1f %%)", s[0], s[1], s[2], g, w, 100*e)
		}
	}
}

// What a worker measures at start-up is what the engine takes, within its time, and leaves nothing behind.
func TestProbe(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	curved := *opened(t, "mock")
	curved.Cost = profile.Cost{Base: 2e6, Prefill: -1e6, PrefillToken: 9e4, ContextToken: 300, Decode: []profile.Point{{Batch: 1, Time: 1e6}, {Batch: 4, Time: 2e6}, {Batch: 16, Time: 9e6}, {Batch: 32, Time: 30e6}}}
	for name, c := range map[string]struct {
		profile *profile.Profile
		noise   float64
		part    float64
	}{
		"mock": {opened(t, "mock"), 0, 0.01}, "curved": {&curved, 0, 0.02}, "noisy": {&curved, 0.03, 0.05},
		"quick": {scaled(&curved, 0.01), 0.03, 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVirtual(t, c.profile, nil)
			v.noise = func() float64 { return math.Exp(c.noise * rng.NormFloat64()) }
			plan := planOf(v, nil)
			got, steps, err := worker.Probe(t.Context(), v, &plan, 2500*time.Millisecond, v.now)
			if err != nil {
				t.Fatal(err)
			}
			if v.clock > 3*time.Second || steps < 20 {
				t.Errorf("%d steps in %v", steps, v.clock)
			}
			like(t, got, c.profile, c.part)
			if got.Limits.MaxBatch != 32 || got.Limits.ChunkTokens != 256 || got.Fit == nil || got.Fit.Steps == 0 {
				t.Errorf("%+v, %+v", got.Limits, got.Fit)
			}
		})
	}
}

// scaled is an engine that is so many times as slow.
func scaled(p *profile.Profile, by float64) *profile.Profile {
	q := *p
	q.Cost.Base, q.Cost.Prefill, q.Cost.PrefillToken, q.Cost.ContextToken = by*p.Cost.Base, by*p.Cost.Prefill, by*p.Cost.PrefillToken, by*p.Cost.ContextToken
	q.Cost.Decode = nil
	for _, d := range p.Cost.Decode {
		q.Cost.Decode = append(q.Cost.Decode, profile.Point{Batch: d.Batch, Time: by * d.Time})
	}
	return &q
}

// A slow engine is measured in part: what fits into the time is right, and it takes no step that it has no time for.
func TestProbeOfASlowEngine(t *testing.T) {
	slow := scaled(opened(t, "mock"), 8) // 2 ms for each token of prefill, steps of 80 ms and more
	v := newVirtual(t, slow, nil)
	plan := planOf(v, nil)
	got, steps, err := worker.Probe(t.Context(), v, &plan, 2500*time.Millisecond, v.now)
	if err != nil {
		t.Fatal(err)
	}
	if v.clock > 3*time.Second || steps < 8 {
		t.Errorf("%d steps in %v", steps, v.clock)
	}
	like(t, got, slow, 0.05)
}

// Engines of odd sizes are measured within them: the mock refuses what does not fit.
func TestProbeOfSmallEngines(t *testing.T) {
	for name, c := range map[string]struct {
		engine func(*mock.Config)
		worker func(*worker.Config)
	}{
		"one sequence":     {func(c *mock.Config) { c.Sequences = 1 }, nil},
		"one at a time":    {nil, func(c *worker.Config) { c.Mode = "fifo" }},
		"all ids run":      {func(c *mock.Config) { c.Sequences = 4 }, nil},
		"256 at once":      {func(c *mock.Config) { c.Sequences = 256 }, func(c *worker.Config) { c.MaxBatch = 256 }},
		"little KV":        {func(c *mock.Config) { c.KVCells, c.ContextTokens = 96, 96 }, nil},
		"short context":    {func(c *mock.Config) { c.ContextTokens = 24 }, nil},
		"narrow steps":     {func(c *mock.Config) { c.BatchTokens = 3 }, nil},
		"small chunks":     {nil, func(c *worker.Config) { c.ChunkTokens = 5 }},
		"pages as a whole": {nil, func(c *worker.Config) { c.KV = "contiguous" }},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVirtual(t, opened(t, "mock"), c.engine)
			plan := planOf(v, c.worker)
			got, _, err := worker.Probe(t.Context(), v, &plan, 2500*time.Millisecond, v.now)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range [][2]int{{3, 0}, {0, 1}} {
				if g, w := got.Step(s[0], s[1], 8), v.profile.Step(s[0], s[1], 8); math.Abs(float64(g)/float64(w)-1) > 0.05 {
					t.Errorf("%v: %v, want %v", s, g, w)
				}
			}
		})
	}
}

// A step that fails ends the measurement, and everything is given back all the same.
func TestProbeOfABrokenEngine(t *testing.T) {
	for at := range 40 {
		n := 0
		v := newVirtual(t, opened(t, "mock"), func(c *mock.Config) {
			c.FailStep = func(*batch.Batch) error {
				if n++; n == at+1 {
					return errBoom
				}
				return nil
			}
		})
		plan := planOf(v, nil)
		if _, _, err := worker.Probe(t.Context(), v, &plan, 2500*time.Millisecond, v.now); !errors.Is(err, errBoom) {
			t.Fatalf("step %d: %v", at, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := newVirtual(t, opened(t, "mock"), nil)
	plan := planOf(v, nil)
	if _, _, err := worker.Probe(ctx, v, &plan, time.Second, v.now); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
