package ladder_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/ladder"
	"github.com/cadence-slo/cadence/bench/pipeline/pipelinetest"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

func TestMain(m *testing.M) {
	pipelinetest.Child()
	if dir := os.Getenv(ladder.KilledDir); dir != "" {
		if err := ladder.Killed(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// quick is a profile of an engine that takes little time.
func quick(t *testing.T) (file string, open func(string) (*profile.Profile, error)) {
	t.Helper()
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "quick"
	p.Cost = profile.Cost{Base: 5e5, PrefillToken: 2e4}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "quick.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, func(name string) (*profile.Profile, error) {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return profile.Decode(b)
	}
}

func sumOf(d []time.Duration) (sum time.Duration) {
	for _, x := range d {
		sum += x
	}
	return sum
}

// A ladder runs on real services, one of its arms through a gateway: every request is answered, what should not be cached
// is not, and each run had its canary.
func TestLadderOnTheMock(t *testing.T) {
	file, open := quick(t)
	d, err := ladder.Parse([]byte(`
name: smoke
workload: seed
arms:
  - {name: fifo, args: [--worker-mode=fifo, --no-worker-prefix-cache]}
  - {name: continuous+cache}
  - {name: gateway, gateway: [--permits=8]}
loads: [2]
capacity: {requests: 6}
slo_alone: {e2e: 100}
seeds: [1, 2, 3]
length: 500ms
drain: 30s
profile: ` + file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	res, err := ladder.Run(t.Context(), ladder.Options{Definition: d, On: ladder.Mock, Dir: dir, Executable: pipelinetest.Executable(t), Version: "test", Profile: open, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Runs) != 9 || res.State.Capacity <= 0 || res.State.SLOs[""].E2E != 100*res.State.AloneE2E {
		t.Fatalf("%+v", res)
	}
	tokens := map[uint64]int{} // by seed, whatever the arm
	answers, timed := 0, 0     // timed ones have intervals
	for _, r := range res.Runs {
		run, err := record.Open(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := record.Requests(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for i := range rows {
			sum += rows[i].OutputTokens
			if rows[i].Outcome != record.OK || rows[i].PromptTokens == 0 {
				t.Fatalf("%s: %+v", r.ID, rows[i])
			}
			answers++
			// An answer that came in one event has no intervals, whether or not its end came by itself.
			if n := len(rows[i].ITL); n > 0 {
				timed++
				if between := sumOf(rows[i].ITL); n != rows[i].OutputTokens-1 || between > rows[i].E2E-rows[i].TTFT {
					t.Fatalf("%s: %d intervals, %v together: %+v", r.ID, n, between, rows[i])
				}
			}
		}
		if was, ok := tokens[r.Seed]; ok && was != sum || sum == 0 {
			t.Errorf("%s: %d tokens, another arm had %d", r.ID, sum, was)
		}
		tokens[r.Seed] = sum
		if run.Canary == nil || run.Canary.Tokens != 64 || run.Canary.TokensRate <= 0 || run.Canary.Err != "" {
			t.Errorf("%s: canary %+v", r.ID, run.Canary)
		}
		if run.Profile != "quick" || run.Rate != 2*res.State.Capacity || run.PromptTokens <= 0 || (run.CachedTokens > 0) != (r.Arm != "fifo") && len(rows) > 4 {
			t.Errorf("%s: %d requests, %+v", r.ID, len(rows), run)
		}
		if slices.Contains(run.Args, "gateway") != (r.Arm == "gateway") || !strings.Contains(strings.Join(run.Args, " "), "--mock-profile="+file) {
			t.Errorf("%s: %v", r.ID, run.Args)
		}
	}
	if timed <= answers/2 {
		t.Errorf("%d of %d answers have intervals", timed, answers)
	}
	begin := time.Now()
	again, err := ladder.Run(t.Context(), ladder.Options{Definition: d, On: ladder.Mock, Dir: dir, Executable: "nothing is started", Version: "test", TrustBuild: true, Profile: open, Log: slog.New(slog.DiscardHandler)})
	if err != nil || !again.Runs[8].Kept || again.State.Time.After(begin) {
		t.Errorf("%+v, %v", again, err)
	}
}

// Whoever wants to hears of every step: together they have fed each token that was not cached.
func TestStepsOfARun(t *testing.T) {
	file, open := quick(t)
	d, err := ladder.Parse([]byte("name: steps\nworkload: seed\narms: [{name: plain, args: [--no-worker-prefix-cache]}]\nloads: [1]\nseeds: [1, 2, 3]\nlength: 1s\ndrain: 30s\nprofile: " + file))
	if err != nil {
		t.Fatal(err)
	}
	fed, steps := int64(0), 0
	run, rows, err := ladder.Single(t.Context(), ladder.Options{
		Definition: d, On: ladder.Mock, Dir: t.TempDir(), Executable: pipelinetest.Executable(t), Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Profile: open, Step: func(s *schema.Step) { fed, steps = fed+int64(s.PrefillTokens), steps+1 },
	}, ladder.Job{ID: "one", Arm: "plain", Rate: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 || steps < len(rows) || fed < run.PromptTokens || run.PromptTokens == 0 {
		t.Errorf("%d requests with %d tokens in %d steps, which fed %d", len(rows), run.PromptTokens, steps, fed)
	}
}
