package ladder

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
)

func embeddedLadder(t *testing.T, name string) *Definition {
	t.Helper()
	d, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func onSim(t *testing.T, d *Definition) *Result {
	t.Helper()
	res, err := Run(t.Context(), Options{Definition: d, On: Sim, Dir: t.TempDir(), Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// mean is an arm's goodput over seeds, at all rates together.
func mean(res *Result, arm string) float64 {
	sum, n := 0.0, 0
	for _, r := range res.Runs {
		if r.Arm == arm {
			sum, n = sum+r.Good, n+1
		}
	}
	return sum / float64(n)
}

// Each rung of the ladder serves more than the one below, on the profile of the machine that it was first seen on.
func TestRungsInTheSimulator(t *testing.T) {
	d := embeddedLadder(t, "seed")
	if err := (&Change{Rates: []float64{1, 1.4}, Length: time.Minute}).Apply(d); err != nil {
		t.Fatal(err)
	}
	res := onSim(t, d)
	before := -1.0
	for _, arm := range []string{"fifo", "static", "continuous", "continuous+cache"} {
		now := mean(res, arm)
		if now <= before {
			t.Errorf("%s: %v requests/s, the rung below %v", arm, now, before)
		}
		before = now
	}
	run, err := record.Open(res.Runs[0].Dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.Profile != "seed-laptop" || run.Canary != nil || run.PromptTokens <= 0 || !slices.Contains(run.Args, "--worker-mode=fifo") || run.SLOs[""].E2E != 4*time.Second {
		t.Errorf("%+v", run)
	}
}

// Rates and objective follow from what the first rung does on the engine at hand.
func TestLoadsInTheSimulator(t *testing.T) {
	d := embeddedLadder(t, "rungs")
	if err := (&Change{Loads: []float64{0.5, 1.6}, Length: 20 * time.Second, Profile: "seed-laptop"}).Apply(d); err != nil {
		t.Fatal(err)
	}
	s := onSim(t, d).State
	// 0.33 s of prefill and 61 tokens of 12.3 ms: about 0.92 requests/s, one after the other.
	if s.Capacity < 0.75 || s.Capacity > 1.1 || s.AloneE2E < 600*time.Millisecond || s.SLOs[""].E2E != 5*s.AloneE2E || s.SLOs[""].TTFT != 10*s.AloneTTFT {
		t.Errorf("capacity %v, alone %v and %v, %+v", s.Capacity, s.AloneTTFT, s.AloneE2E, s.SLOs)
	}
	for _, j := range s.Jobs() {
		if j.Rate != j.Load*s.Capacity {
			t.Errorf("%+v", j)
		}
	}
}

// Waiting requests that cannot be answered in time cost those that could: the limit to the wait pays beyond the knee.
func TestQueueBudgetInTheSimulator(t *testing.T) {
	res := onSim(t, embeddedLadder(t, "queue-budget"))
	without, with := mean(res, "disabled"), mean(res, "budget-750ms")
	if with < 2*without {
		t.Errorf("goodput %v with a limit, %v without", with, without)
	}
	for _, r := range res.Runs {
		rows, err := record.Requests(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		shed := slices.ContainsFunc(rows, func(q record.Request) bool { return q.Outcome == record.Shed })
		if shed != (r.Arm != "disabled") {
			t.Errorf("%s: refused %v", r.ID, shed)
		}
	}
}

// Shortest first spares the short ones far beyond the knee, and the long ones of a finite run end no later.
func TestOrderInTheSimulator(t *testing.T) {
	res := onSim(t, embeddedLadder(t, "admitctl"))
	p99 := map[string]time.Duration{} // by arm and kind, over the runs at 22/s
	for _, r := range res.Runs {
		if r.Rate != 22 {
			continue
		}
		rows, err := record.Requests(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string][]time.Duration{}
		for _, q := range rows {
			of[q.Kind] = append(of[q.Kind], q.E2E)
		}
		for kind, e2e := range of {
			slices.Sort(e2e)
			p99[r.Arm+" "+kind] += e2e[len(e2e)*99/100]
		}
	}
	if p99["sjf short"]*4 > p99["fcfs short"] || p99["sjf long"] > p99["fcfs long"]*105/100 {
		t.Errorf("p99, summed over seeds: %v", p99)
	}
}

// Every ladder that comes with the package can be run on what it says it is for.
func TestEmbeddedLaddersCanBeRun(t *testing.T) {
	_, vocab, err := pipeline.MockModel()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Embedded() {
		d := embeddedLadder(t, name)
		for _, on := range d.On {
			if err := (&Options{Definition: d, On: on}).Check(); err != nil {
				t.Errorf("%s on %s: %v", name, on, err)
			}
		}
		src, err := workload.OpenSource(d.Workload, vocab, 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.SLO == nil && d.Alone == nil && len(src.SLOs()) == 0 {
			t.Errorf("%s has no objective", name)
		}
		if _, err := profile.Open(d.Profile); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := embeddedLadder(t, "seed")
	if err := (&Options{Definition: d, On: Llama}).Check(); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	d = embeddedLadder(t, "direct-gateway")
	d.On = Kinds
	if err := (&Options{Definition: d, On: Sim}).Check(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "gateway") {
		t.Error(err)
	}
	d = embeddedLadder(t, "rungs")
	d.Arms[1].Args = []string{"--tls-cert=x"}
	if err := (&Options{Definition: d, On: Sim}).Check(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "tls-cert") {
		t.Error(err)
	}
}

// The simulator reads an arm's arguments as the worker does.
func TestFlags(t *testing.T) {
	p, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseFlags(sizes(p))
	if err != nil {
		t.Fatal(err)
	}
	want := p.Batch()
	got, err := f.batch()
	if err != nil {
		t.Fatal(err)
	}
	if got.KVPages != want.KVPages || got.PageTokens != want.PageTokens || got.MaxBatch != want.MaxBatch || got.Sequences != want.Sequences ||
		got.BatchTokens != want.BatchTokens || got.ChunkTokens != want.ChunkTokens || got.ContextTokens != want.ContextTokens {
		t.Errorf("%+v, want %+v", got, want)
	}
	if f, err = parseFlags(append(sizes(p), "--worker-mode=fifo", "--no-worker-prefix-cache", "--kv-tokens=8192", "--scheduler-max-queue-wait=750ms", "--max-waiting=64", "--max-open=99")); err != nil {
		t.Fatal(err)
	}
	if b, err := f.batch(); err != nil || b.Mode != batch.FIFO || b.MaxBatch != 1 || b.PrefixCache || b.KVPages != 512 || f.Scheduler.MaxQueueWait != 750*time.Millisecond ||
		f.MaxWaiting != 64 || f.MaxOpen != 99 {
		t.Errorf("%+v, %+v", b, f)
	}
	if _, err := parseFlags([]string{"--worker-page-tokens=0"}); err == nil {
		t.Error("a page of no tokens")
	}
}

// What a worker would not start with is refused before the first run, and no ladder here asks for it.
func TestEnginesAreLargeEnough(t *testing.T) {
	simulated := func(d *Definition) error {
		p, err := profile.Open(d.Profile)
		if err != nil {
			t.Fatal(err)
		}
		_, err = openSimulator(d, p)
		return err
	}
	for _, name := range Embedded() {
		if d := embeddedLadder(t, name); slices.Contains(d.On, Sim) {
			if err := simulated(d); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	d := embeddedLadder(t, "seed")
	d.Arms[3].Args = []string{"--sequences=64", "--worker-max-batch=128"}
	if err := simulated(d); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "max_batch is 128, allowed: 0 to 64") {
		t.Error(err)
	}
}

func TestChange(t *testing.T) {
	d := embeddedLadder(t, "seed")
	args := len(d.Args)
	if err := (&Change{Loads: []float64{2}, Length: 90 * time.Second, SLOE2E: time.Second, Threads: 2, UpArgs: []string{"--x=1"}}).Apply(d); err != nil {
		t.Fatal(err)
	}
	if d.Rates != nil || d.Loads[0] != 2 || d.Warmup != 10*time.Second || d.SLO.E2E != time.Second || d.Threads != 2 || d.Workload != "seed" || len(d.Args) != args+1 {
		t.Errorf("%+v", d)
	}
	d = embeddedLadder(t, "permits")
	if err := (&Change{Length: time.Minute}).Apply(d); err != nil || d.Requests != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := (&Change{Seeds: []uint64{1}}).Apply(d); !errors.Is(err, ErrDefinition) {
		t.Error(err)
	}
	d = embeddedLadder(t, "rungs")
	if least, most, ok := d.Estimate(0); !ok || least != 24*time.Minute || most != 33*time.Minute {
		t.Error(least, most, ok)
	}
	d = embeddedLadder(t, "queue-budget")
	if least, _, ok := d.Estimate(0); !ok || least != 20*13125*time.Millisecond {
		t.Error(least, ok)
	}
	d.Rates, d.Loads = nil, []float64{1}
	if _, _, ok := d.Estimate(0); ok {
		t.Error("requests at unknown rates have a length")
	}
}
