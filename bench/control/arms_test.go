package control_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
)

// laptop is a minute of the seed's workload on the seed's laptop; its records go to rows.
func laptop(t *testing.T, rate float64, seed uint64, rows *[]record.Request) (sim.Config, *profile.Profile) {
	t.Helper()
	p, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	vocab, err := workload.NewVocabulary(32000, nil)
	if err != nil {
		t.Fatal(err)
	}
	source, err := workload.OpenSource("seed", vocab, seed)
	if err != nil {
		t.Fatal(err)
	}
	plan := p.Batch()
	plan.PrefixCache, plan.Order = true, batch.PrefillFirst
	const length = time.Minute
	return sim.Config{Source: source, Arrivals: arrival.Poisson{}.Times(seed, rate, length), Capped: true, Seed: seed, Profile: p, Workers: 1, Batch: plan,
		Latency: sim.DefaultLatency(), Length: length, Drain: length, ClientTimeout: length, SLOs: map[string]record.SLO{"": {E2E: 4 * time.Second}},
		Sink: func(r *record.Request) error {
			*rows = append(*rows, *r)
			return nil
		}}, p
}

// collect sees 3 minutes below the knee.
func collect(t *testing.T) *control.Seen {
	t.Helper()
	var rows []record.Request
	cfg, p := laptop(t, 1, 7, &rows)
	cfg.Length, cfg.Arrivals = 3*time.Minute, arrival.Poisson{}.Times(7, 1, 3*time.Minute)
	seen, err := control.Collect(&cfg, control.Options{Profile: p})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	answered := 0
	for i := range rows {
		if rows[i].Outcome == record.OK {
			if seen.Latencies[answered] != rows[i].E2E || seen.Samples[answered].E2E != rows[i].E2E || seen.Samples[answered].CapTokens != float64(rows[i].CapTokens) {
				t.Fatalf("sample %+v of %+v", seen.Samples[answered], rows[i])
			}
			answered++
		}
	}
	if answered != len(rows) || len(seen.Samples) != answered || len(seen.Latencies) != answered {
		t.Fatalf("%d of %d answered, %d samples", answered, len(rows), len(seen.Samples))
	}
	if _, err := seen.Predictor.Frozen(0.99); err != nil { // a minute and a half of rows suffice
		t.Fatal(err)
	}
	return seen
}

// Whoever is not answered counts among those that are fitted to, with no less than its client's patience.
func TestFitsCountWhatWasNotAnswered(t *testing.T) {
	var rows []record.Request
	cfg, p := laptop(t, 6, 7, &rows)
	cfg.ClientTimeout = 5 * time.Second
	seen, err := control.Collect(&cfg, control.Options{Profile: p})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	given, late := 0, 0
	for i := range rows {
		if rows[i].Outcome == record.Timeout {
			given++
		}
	}
	for i := range seen.Latencies {
		if seen.Samples[i].E2E != seen.Latencies[i] {
			t.Fatalf("latency %v of sample %+v", seen.Latencies[i], seen.Samples[i])
		}
		if seen.Latencies[i] >= cfg.ClientTimeout {
			late++
		}
	}
	if given == 0 || late != given || len(seen.Latencies) != len(rows) {
		t.Errorf("%d of %d gave up, and %d of %d were seen to take so long", given, len(rows), late, len(seen.Latencies))
	}
}

// Every arm decides on every request, and each but none refuses some of four times what the engine can do.
func TestEveryArmDecides(t *testing.T) {
	seen := collect(t)
	for _, name := range control.Arms() {
		var rows []record.Request
		cfg, p := laptop(t, 8, 1, &rows)
		if _, err := control.Attach(&cfg, control.Options{Arm: name, Seen: seen, Profile: p}); err != nil {
			t.Fatal(err)
		}
		if _, err := sim.Run(context.Background(), cfg); err != nil {
			t.Fatal(err)
		}
		refused, early := 0, 0 // early: at arrival
		for i := range rows {
			if rows[i].Outcome == record.Shed {
				refused++
				if rows[i].E2E <= cfg.Latency.Request {
					early++
				}
			}
		}
		open := slices.Contains([]string{"none", "constant-quantile"}, name) // a constant is within the objective or it is not
		if (refused == 0) != open || early > 0 == (name == "queue-wait") && !open {
			t.Errorf("%s refused %d of %d, %d of them at arrival", name, refused, len(rows), early)
		}
	}
}

// A constant that is beyond the objective admits nothing; a limit of one request in flight holds one.
func TestConstantsAreTheArms(t *testing.T) {
	seen := collect(t)
	slices.Sort(seen.Latencies)
	for i := range seen.Latencies {
		seen.Latencies[i] += 4 * time.Second
	}
	var refused, single []record.Request
	cfg, _ := laptop(t, 1, 1, &refused)
	if _, err := control.Attach(&cfg, control.Options{Arm: "constant-quantile", Constant: 0.5, Seen: seen}); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	cfg, _ = laptop(t, 4, 1, &single)
	if _, err := control.Attach(&cfg, control.Options{Arm: "in-flight", Constant: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := sim.Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	for i := range refused {
		if refused[i].Outcome != record.Shed {
			t.Errorf("admitted: %+v", refused[i])
		}
	}
	slices.SortFunc(single, func(a, b record.Request) int { return a.Index - b.Index })
	until := time.Duration(0)
	for i := range single {
		r := &single[i]
		if busy := r.Intended < until; busy != (r.Outcome == record.Shed) {
			t.Errorf("request %d at %v while one is held until %v: %s", r.Index, r.Intended, until, r.Outcome)
		}
		if r.Outcome == record.OK {
			until = r.Intended + r.E2E
		}
	}
}

func TestFittedArmsWantSomethingToFitTo(t *testing.T) {
	for _, name := range []string{"constant-quantile", "throughput", "frozen-bound"} {
		if _, err := control.Attach(&sim.Config{}, control.Options{Arm: name}); !errors.Is(err, control.ErrSeen) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
