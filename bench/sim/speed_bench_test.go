//go:build unix

package sim_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/control"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/predictor/profile/profiletest"
	"github.com/cadence-slo/cadence/worker/batch"
)

// BenchmarkSimSeed is how fast one worker on the seed's laptop is simulated, at 1.4 requests/s, a little below what it serves, and
// at 2.6, beyond it: answered requests a second of real time, and a second of CPU time, which a busy machine does not change.
//
//	GOMAXPROCS=1 go test -run '^$' -bench SimSeed -benchtime 3x ./bench/sim
func BenchmarkSimSeed(b *testing.B) {
	for _, r := range []struct {
		name string
		rate float64
	}{{"1.4", 1.4}, {"2.6", 2.6}} {
		b.Run(r.name, func(b *testing.B) { answer(b, r.rate, "") })
	}
}

// BenchmarkSimSeedAdmission is the same with a decision on each request, by the arm that looks furthest ahead.
func BenchmarkSimSeedAdmission(b *testing.B) {
	for _, r := range []struct {
		name string
		rate float64
	}{{"1.4", 1.4}, {"2.6", 2.6}} {
		b.Run(r.name, func(b *testing.B) { answer(b, r.rate, "marginal") })
	}
}

// answer simulates 2,000 requests, with admission by an arm; "": without.
func answer(b *testing.B, rate float64, arm string) {
	p := profiletest.Open(b, "seed-laptop")
	vocab, err := workload.NewVocabulary(32000, nil)
	if err != nil {
		b.Fatal(err)
	}
	answered := 0
	cpu := cpuTime(b)
	for b.Loop() {
		cfg := seedRun(b, p, vocab, rate)
		cfg.Sink = func(r *record.Request) error {
			if r.Outcome == record.OK {
				answered++
			}
			return nil
		}
		if arm != "" {
			if _, err := control.Attach(&cfg, control.Options{Arm: arm, Profile: p, Seed: 1}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := sim.Run(b.Context(), cfg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(answered)/b.Elapsed().Seconds(), "answered/s")
	b.ReportMetric(float64(answered)/(cpuTime(b)-cpu).Seconds(), "answered/cpu-s")
}

func seedRun(b *testing.B, p *profile.Profile, vocab workload.Vocabulary, rate float64) sim.Config {
	source, err := workload.OpenSource("seed", vocab, 1)
	if err != nil {
		b.Fatal(err)
	}
	length := time.Duration(2000 / rate * float64(time.Second))
	plan := p.Batch()
	plan.PrefixCache, plan.CacheOutput, plan.Order = true, true, batch.PrefillFirst
	return sim.Config{Source: source, Arrivals: arrival.Poisson{}.Times(1, rate, length), Capped: true, Seed: 1, Profile: p, Workers: 1, Batch: plan,
		Latency: sim.DefaultLatency(), Length: length, Drain: sim.Forever, ClientTimeout: 5 * time.Minute, SLOs: map[string]record.SLO{"": {E2E: 4 * time.Second}}}
}

// cpuTime is what this process has used, of the system's time, too.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
