package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/workload"
)

// result is what became of a run's measured requests.
type result struct {
	offered, refused, good int
	control                *control.Control
}

// serve runs the seed's workload on the seed's laptop, 24 at once, for four minutes; arm "" admits all.
func serve(t *testing.T, arm string, rate float64, seed uint64) result {
	t.Helper()
	return run(t, control.Options{Arm: arm, Seed: seed}, rate)
}

// run is serve with more options, and with changes to the run.
func run(t *testing.T, o control.Options, rate float64, edits ...func(*sim.Config)) result {
	t.Helper()
	arm, seed := o.Arm, o.Seed
	var rows []record.Request
	cfg, p := laptop(t, rate, seed, &rows)
	const length = 4 * time.Minute
	cfg.Batch.MaxBatch = 24
	cfg.Arrivals, cfg.Length, cfg.Warmup, cfg.Drain, cfg.ClientTimeout = arrival.Poisson{}.Times(seed, rate, length), length, time.Minute, length, length
	for _, edit := range edits {
		edit(&cfg)
	}
	var out result
	if arm != "" {
		o.Profile = p
		c, err := control.Attach(&cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		out.control = c
	}
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		r := &rows[i]
		if r.Phase != record.Measure {
			continue
		}
		out.offered++
		if r.Outcome == record.Shed {
			out.refused++
		}
		if r.Outcome == record.OK && r.E2E <= 4*time.Second {
			out.good++
		}
	}
	return out
}

// Where there is room admission costs nothing, and where there is not it keeps most of what the engine can do in time.
func TestAdmissionHoldsTheTailAndCostsNothing(t *testing.T) {
	var below, none, over, gate, all result
	for seed := uint64(1); seed <= 2; seed++ {
		for _, x := range []struct {
			to   *result
			arm  string
			rate float64
		}{{&below, "marginal", 1}, {&none, "", 1}, {&over, "marginal", 4}, {&gate, "online-bound", 4}, {&all, "", 4}} {
			r := serve(t, x.arm, x.rate, seed)
			x.to.offered += r.offered
			x.to.refused += r.refused
			x.to.good += r.good
		}
	}
	t.Logf("at 1/s: %+v, admitting all %+v", below, none)
	t.Logf("at 4/s: %+v, the gate %+v, admitting all %+v", over, gate, all)
	if float64(below.good) < 0.99*float64(none.good) || float64(below.refused) > 0.01*float64(below.offered) {
		t.Errorf("at 1/s %d of %d are good and %d refused; admitting all, %d are good", below.good, below.offered, below.refused, none.good)
	}
	if over.good < 10*all.good || over.good < gate.good || over.good < over.offered/2 {
		t.Errorf("at 4/s %d of %d are good, with the gate %d, admitting all %d", over.good, over.offered, gate.good, all.good)
	}
}

// At twice what the engine can do, most of those who ask for a guarantee get one, and it is kept; the others are refused or served
// without. Who asks does not depend on the arm.
func TestPromisesAreKept(t *testing.T) {
	r := run(t, control.Options{Arm: "marginal", Level: 0.9, Guarantee: 0.3, Seed: 1}, 4)
	p := r.control.Promises()
	t.Logf("%+v, %d of %d good", p, r.good, r.offered)
	if asked := float64(p.Asked) / float64(r.offered); asked < 0.3 || asked > 0.45 { // of all phases, a quarter more than those measured
		t.Errorf("%d asked, and %d were measured", p.Asked, r.offered)
	}
	if p.Given < p.Asked/3 || p.Given+p.Refused > p.Asked || p.Kept+p.Broken+p.Left != p.Given || p.Attainment() < 0.9 {
		t.Errorf("%+v", p)
	}
	if gate := run(t, control.Options{Arm: "online-bound", Guarantee: 0.3, Seed: 1}, 4).control.Promises(); gate.Asked != p.Asked {
		t.Errorf("%d ask a gate, %d the rule", gate.Asked, p.Asked)
	}
}

// A class of the workload that is called so asks for a guarantee, too.
func TestAClassAsksForAGuarantee(t *testing.T) {
	const slo = 4 * time.Second
	r := run(t, control.Options{Arm: "marginal", Seed: 1}, 2, func(c *sim.Config) {
		c.Source = classy{c.Source}
		c.SLOs = map[string]record.SLO{"": {E2E: slo}, "guaranteed": {E2E: 2 * slo}}
	})
	p := r.control.Promises()
	if asked := float64(p.Asked) / float64(r.offered); asked < 0.3 || asked > 0.5 || p.Given < p.Asked/2 || p.Attainment() < 0.8 {
		t.Errorf("%+v of %d", p, r.offered)
	}
}

// classy makes every third request one of class guaranteed.
type classy struct{ workload.Source }

func (s classy) Request(i int) workload.Request {
	r := s.Source.Request(i)
	if i%3 == 0 {
		r.Class = "guaranteed"
	}
	return r
}

// At twice what the engine can do: what may go wrong costs little of what is in time.
func TestWhatMayGoWrongCostsLittle(t *testing.T) {
	const rate = 4
	plain := serve(t, "marginal", rate, 1)
	if p := plain.control.Promises(); p != (control.Promises{}) {
		t.Errorf("nobody asked: %+v", p)
	}
	ages := control.Options{Ingresses: 4, PoolAge: 20 * time.Millisecond, EngineAge: 50 * time.Millisecond}
	byHash := ages
	byHash.ByHash = true
	for _, x := range []struct {
		name string
		o    control.Options
		part float64 // of what is in time otherwise
	}{
		{"four ingresses that see each other's requests late", ages, 0.9},
		{"the same, dealt by hash", byHash, 0.9},
		{"engines are taken for half as fast", control.Options{Belief: 0.5}, 0.9},
		{"engines are taken for twice as fast", control.Options{Belief: 2}, 0.9},
	} {
		x.o.Arm, x.o.Seed = "marginal", 1
		r := run(t, x.o, rate)
		t.Logf("%s: %d of %d good, otherwise %d", x.name, r.good, r.offered, plain.good)
		if float64(r.good) < x.part*float64(plain.good) {
			t.Errorf("%s: %d good, otherwise %d", x.name, r.good, plain.good)
		}
		controllers := r.control.Controllers()
		if len(controllers) != max(1, x.o.Ingresses) {
			t.Fatalf("%s: %d controllers", x.name, len(controllers))
		}
		for i, c := range controllers {
			coverage := c.Predictor().Coverage()
			if n := coverage.Rows() + coverage.Censored; n < r.offered/4/len(controllers) {
				t.Errorf("%s: ingress %d let %d in, of %d offered to all", x.name, i, n, r.offered)
			}
		}
	}
	half := run(t, control.Options{Arm: "marginal", Seed: 1}, rate, func(c *sim.Config) {
		c.Speeds = []sim.Speed{{At: c.Warmup, Factor: 0.5}}
	})
	if half.refused <= plain.refused || half.good < plain.good/3 {
		t.Errorf("of an engine that becomes half as fast %d are good and %d refused, otherwise %d and %d", half.good, half.refused, plain.good, plain.refused)
	}
}

func TestOptionsNameTheKey(t *testing.T) {
	for key, o := range map[string]control.Options{
		"level": {Level: 1}, "belief": {Belief: -1}, "guarantee": {Guarantee: 1.1}, "ingresses": {Ingresses: -1}, "pool_age": {PoolAge: -1},
		"engine_age": {EngineAge: -1},
	} {
		o.Arm = "marginal"
		if _, err := control.Attach(&sim.Config{}, o); !errors.Is(err, control.ErrOptions) || !strings.Contains(err.Error(), key+" is") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestAttachNamesTheArms(t *testing.T) {
	if _, err := control.Attach(&sim.Config{}, control.Options{Arm: "none of them"}); !errors.Is(err, control.ErrArm) {
		t.Error(err)
	}
}

// What is let in whatever the arm says is bounded and learned from all the same.
func TestOpenLetsAllIn(t *testing.T) {
	got := run(t, control.Options{Arm: "online-bound", Seed: 1, Open: true}, 4)
	covered := got.control.Controllers()[0].Predictor().Coverage()
	if got.refused != 0 || got.offered == 0 || covered.Rows() < got.offered/2 {
		t.Errorf("%d of %d refused, %+v of bounds", got.refused, got.offered, covered)
	}
}
