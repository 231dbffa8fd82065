package report

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// server is a queue in front of a number of equal servers: what an arm of the generator is.
type server struct {
	name    string
	servers int
	service time.Duration // mean; each is between a half and one and a half of it
	first   time.Duration // to the first token, after the wait
	gap     time.Duration // between tokens
	hits    float64
	budget  time.Duration // promised: a request is shed if it would take longer; 0: none is
}

// ladder are arms of which each is better than the one before, the last by refusing.
var ladder = []server{
	{name: "fifo", servers: 1, service: 1600 * time.Millisecond, first: 300 * time.Millisecond, gap: 15 * time.Millisecond},
	{name: "static", servers: 8, service: 8 * time.Second, first: 900 * time.Millisecond, gap: 45 * time.Millisecond},
	{name: "continuous", servers: 8, service: 5 * time.Second, first: 400 * time.Millisecond, gap: 50 * time.Millisecond},
	{name: "+cache", servers: 8, service: 3500 * time.Millisecond, first: 100 * time.Millisecond, gap: 48 * time.Millisecond, hits: 0.64},
	{name: "+admission", servers: 8, service: 3500 * time.Millisecond, first: 100 * time.Millisecond, gap: 48 * time.Millisecond, hits: 0.72, budget: 4600 * time.Millisecond},
}

// grid is what generate makes.
type grid struct {
	arms   []server
	rates  []float64
	seeds  int
	length time.Duration
	slo    time.Duration
}

// generate writes a run for each arm, rate and seed below dir, and returns how many requests that were. The same grid
// makes the same records.
func generate(t testing.TB, dir string, g grid) int {
	t.Helper()
	requests, order := 0, 0
	for i, rate := range g.rates {
		for k := range g.arms {
			arm := (i + k) % len(g.arms)
			for seed := 1; seed <= g.seeds; seed++ {
				run := &record.Run{
					ID: fmt.Sprintf("%s-%g-%d", g.arms[arm].name, rate, seed), Time: time.Unix(1_700_000_000, 0).UTC(), Experiment: "generated", On: "sim", Arm: g.arms[arm].name,
					Rate: rate, Seed: uint64(seed), Order: order, Workload: "queue", Arrivals: "poisson", SLOs: map[string]record.SLO{"": {E2E: g.slo}},
					Length: g.length, Warmup: g.length / 10, Tail: g.length / 10, Build: "test", Sources: "0123456789abcdef",
					Canary: &record.Canary{Tokens: 64, Took: time.Second, TokensRate: 84 + float64((order*7)%11)},
				}
				rows := g.arms[arm].serve(run)
				requests += len(rows)
				write(t, filepath.Join(dir, "runs", run.ID), run, rows)
				order++
			}
		}
	}
	return requests
}

// write writes a run; a nil run does not end.
func write(t testing.TB, dir string, run *record.Run, rows []record.Request) {
	t.Helper()
	w, err := record.Create(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := w.Add(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(run); err != nil {
		t.Fatal(err)
	}
}

// serve offers Poisson arrivals, which depend on seed and rate alone, to the server.
func (s *server) serve(run *record.Run) []record.Request {
	rng := rand.New(rand.NewPCG(run.Seed, uint64(1000*run.Rate)))
	free := make([]time.Duration, s.servers)
	const patience, drain = 300 * time.Second, 120 * time.Second
	var out []record.Request
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() / run.Rate * 1e9)
		length, tenant := 0.5+rng.Float64(), []string{"gold", "standard", "batch"}[rng.IntN(3)]
		if at >= run.Length {
			return out
		}
		next := 0
		for i := range free {
			if free[i] < free[next] {
				next = i
			}
		}
		begin := max(at, free[next])
		done := begin + time.Duration(length*float64(s.service))
		r := record.Request{Index: len(out), Tenant: tenant, Phase: run.PhaseAt(at), Intended: at, Lag: 50 * time.Microsecond, PromptTokens: 540, CapTokens: 128,
			Queued: begin - at, TTFT: begin - at + s.first, E2E: done - at, Outcome: record.OK, OutputTokens: 5, CachedTokens: int(540 * s.hits)}
		for i := range 4 {
			r.ITL = append(r.ITL, s.gap+time.Duration(i)*time.Millisecond)
		}
		if s.budget > 0 {
			r.Bound = s.budget
		}
		switch end := run.Length + drain; {
		case s.budget > 0 && done-at > s.budget+time.Duration(length*2e8):
			r = record.Request{Index: r.Index, Tenant: tenant, Phase: r.Phase, Intended: at, PromptTokens: 540, CapTokens: 128, Queued: -1, TTFT: -1, E2E: time.Millisecond, Outcome: record.Shed, Reason: "capacity", RetryAfter: time.Second}
			out = append(out, r)
			continue
		case r.E2E > patience:
			r.Outcome, r.E2E, r.OutputTokens, r.ITL = record.Timeout, patience, 0, nil
		case done > end:
			r.Outcome, r.E2E, r.OutputTokens, r.ITL = record.Censored, end-at, 0, nil
		}
		if r.Outcome != record.OK && r.TTFT > r.E2E {
			r.TTFT = -1
		}
		free[next] = done
		out = append(out, r)
	}
}

// generated is a small grid, loaded.
func generated(t testing.TB) *Report {
	t.Helper()
	dir := t.TempDir()
	generate(t, dir, grid{arms: ladder, rates: []float64{0.6, 1.4, 2.6}, seeds: 3, length: 100 * time.Second, slo: 6 * time.Second})
	return load(t, dir, Options{Resamples: 2000})
}

func load(t testing.TB, dir string, o Options) *Report {
	t.Helper()
	r, err := Load(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
