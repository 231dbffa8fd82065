package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
)

// result is what became of a run's measured requests.
type result struct{ offered, refused, good int }

// serve runs the seed's workload on the seed's laptop, 24 at once, for five minutes; arm "" admits all.
func serve(t *testing.T, arm string, rate float64, seed uint64) result {
	t.Helper()
	var rows []record.Request
	cfg, p := laptop(t, rate, seed, &rows)
	const length = 5 * time.Minute
	cfg.Batch.MaxBatch = 24
	cfg.Arrivals, cfg.Length, cfg.Warmup, cfg.Drain, cfg.ClientTimeout = arrival.Poisson{}.Times(seed, rate, length), length, time.Minute, length, length
	if arm != "" {
		if _, err := control.Attach(&cfg, control.Options{Arm: arm, Profile: p, Seed: seed}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	var out result
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

func TestAttachNamesTheArms(t *testing.T) {
	if _, err := control.Attach(&sim.Config{}, control.Options{Arm: "none of them"}); !errors.Is(err, control.ErrArm) {
		t.Error(err)
	}
}
