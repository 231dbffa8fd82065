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

// serve runs the seed's workload on the seed's laptop, 24 at once, for five minutes; arm "" admits all.
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
	const length = 5 * time.Minute
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
	for seed := uint64(1); seed <= 3; seed++ {
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
	if none := serve(t, "marginal", 4, 1).control.Promises(); none != (control.Promises{}) {
		t.Errorf("nobody asked: %+v", none)
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

// Four ingresses that each see the others' requests late do about as well as one, whoever deals; each decides.
func TestSeveralIngresses(t *testing.T) {
	const rate = 4
	one := serve(t, "marginal", rate, 1)
	for _, byHash := range []bool{false, true} {
		four := run(t, control.Options{Arm: "marginal", Seed: 1, Ingresses: 4, PoolAge: 20 * time.Millisecond, EngineAge: 50 * time.Millisecond, ByHash: byHash}, rate)
		t.Logf("one: %d of %d good; four, by hash %v: %d", one.good, one.offered, byHash, four.good)
		if four.good < one.good*9/10 {
			t.Errorf("by hash %v: %d good, %d with one ingress", byHash, four.good, one.good)
		}
		controllers := four.control.Controllers()
		if len(controllers) != 4 {
			t.Fatalf("%d controllers", len(controllers))
		}
		for i, c := range controllers {
			coverage := c.Predictor().Coverage()
			if n := coverage.Rows() + coverage.Censored; n < four.offered/16 {
				t.Errorf("by hash %v: ingress %d let %d in, of %d offered to all", byHash, i, n, four.offered)
			}
		}
	}
}

// What is believed wrongly of the engines is made up for by what workers notice, and controllers learn.
func TestAWrongProfileIsMadeUpFor(t *testing.T) {
	const rate = 4
	right := serve(t, "marginal", rate, 1)
	for _, belief := range []float64{0.5, 2} {
		wrong := run(t, control.Options{Arm: "marginal", Seed: 1, Belief: belief}, rate)
		t.Logf("right: %d of %d good; engines believed to be %v times as fast: %d", right.good, right.offered, belief, wrong.good)
		if wrong.good < right.good*9/10 {
			t.Errorf("engines are believed to be %v times as fast: %d good, %d with what is right", belief, wrong.good, right.good)
		}
	}
}

// An engine that becomes half as fast has those who come later refused.
func TestAShiftOfTheEngineIsFollowed(t *testing.T) {
	const rate = 4
	before := serve(t, "marginal", rate, 1)
	after := run(t, control.Options{Arm: "marginal", Seed: 1}, rate, func(c *sim.Config) {
		c.Speeds = []sim.Speed{{At: c.Warmup, Factor: 0.5}}
	})
	t.Logf("%+v, half as fast %+v", before, after)
	if after.refused <= before.refused || after.good < before.good/3 {
		t.Errorf("%d of %d good and %d refused; at full speed %d and %d", after.good, after.offered, after.refused, before.good, before.refused)
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
