package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile/profiletest"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

var open = profiletest.Open

// source makes requests by a function.
type source func(i int) workload.Request

func (source) Name() string                { return "test" }
func (source) Describe() json.RawMessage   { return json.RawMessage(`{}`) }
func (source) SLOs() map[string]record.SLO { return nil }
func (s source) Request(i int) workload.Request {
	r := s(i)
	r.Index = i
	return r
}

// engine takes its time by a function.
type engine func(prefill, decodes, context int) time.Duration

func (e engine) Step(prefill, decodes, context int) time.Duration {
	return e(prefill, decodes, context)
}

// prompt returns n token ids that no other request has.
func prompt(i, n int) []int32 {
	p := make([]int32, n)
	for k := range p {
		p[k] = int32(mix(uint64(i)<<32+uint64(k)) >> 33)
	}
	return p
}

func seedSource(t testing.TB, seed uint64) workload.Source {
	t.Helper()
	vocab, err := workload.NewVocabulary(32000, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := workload.OpenSource("seed", vocab, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seedConfig is the seed's workload on the seed's laptop.
func seedConfig(t testing.TB, rate float64, length time.Duration, seed uint64) Config {
	t.Helper()
	p := open(t, "seed-laptop")
	c := Config{Source: seedSource(t, seed), Arrivals: arrival.Poisson{}.Times(seed, rate, length), Seed: seed, Profile: p, Workers: 1,
		Batch: p.Batch(), Length: length, Drain: Forever, SLOs: map[string]record.SLO{"": {E2E: 4 * time.Second}}}
	c.Batch.PrefixCache = true
	return c
}

// simulate runs a configuration and returns its records by index.
func simulate(t testing.TB, c Config) (*record.Run, []record.Request) {
	t.Helper()
	var rows []record.Request
	c.Sink = func(r *record.Request) error {
		rows = append(rows, *r)
		return nil
	}
	run, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b record.Request) int { return a.Index - b.Index })
	for i := range rows {
		if rows[i].Index != i {
			t.Fatalf("record %d is of request %d", i, rows[i].Index)
		}
	}
	return run, rows
}

// at is a list of arrivals.
func at(times ...time.Duration) iter.Seq[time.Duration] { return slices.Values(times) }

// One request, step by step: every latency is where it belongs.
func TestOneRequest(t *testing.T) {
	p := open(t, "mock")
	c := Config{
		Source: source(func(i int) workload.Request {
			return workload.Request{Prompt: prompt(i, 600), Cap: 50, Output: 4, Tenant: "acme", Class: "gold", Kind: "long"}
		}),
		Arrivals: at(10 * time.Millisecond), Profile: p, Workers: 1, Batch: p.Batch(), Length: time.Second, Drain: Forever, KeepITL: true,
		Latency: Latency{Request: 1e6, Append: 2e6, Dispatch: 4e6, Token: 8e6}, Capped: true,
	}
	c.Batch.ChunkTokens, c.Batch.BatchTokens = 512, 512
	run, rows := simulate(t, c)
	prefill := p.Step(512, 0, 512) + p.Step(88, 0, 600)
	want := record.Request{
		Index: 0, Tenant: "acme", Class: "gold", Kind: "long", Phase: record.Measure, PromptTokens: 600, CapTokens: 50, OutputTokens: 4,
		Intended: 10 * time.Millisecond, Queued: 7 * time.Millisecond, TTFT: 15*time.Millisecond + prefill, Outcome: record.OK, Attempts: 1,
	}
	want.E2E = want.TTFT
	for k := range 3 {
		step := p.Step(0, 1, 601+k)
		want.ITL = append(want.ITL, step)
		want.E2E += step
	}
	got := rows[0]
	if !schema.RequestID(got.ID).Valid() {
		t.Errorf("id %q", got.ID)
	}
	want.ID = got.ID
	if !slices.Equal(got.ITL, want.ITL) {
		t.Errorf("gaps %v, want %v", got.ITL, want.ITL)
	}
	got.ITL, want.ITL = nil, nil
	if g, w := mustJSON(t, got), mustJSON(t, want); g != w {
		t.Errorf("%s\nwant\n%s", g, w)
	}
	if run.PromptTokens != 600 || run.CachedTokens != 0 || run.Preemptions != 0 || run.Wall != want.Intended+want.E2E || run.Profile != "mock" {
		t.Errorf("%+v", run)
	}
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// events runs a configuration with a log, which it returns.
func events(t testing.TB, c Config) []byte {
	t.Helper()
	var log bytes.Buffer
	c.Events = &log
	simulate(t, c)
	return log.Bytes()
}

func TestTheSameSeedWritesTheSameLog(t *testing.T) {
	config := func(seed uint64) Config {
		c := seedConfig(t, 2, time.Minute, seed)
		c.Latency, c.ReadTimeout, c.Deadlines = DefaultLatency(), 20*time.Second, true
		return c
	}
	a, b, other := events(t, config(1)), events(t, config(1)), events(t, config(2))
	if !bytes.Equal(a, b) {
		t.Error("two runs with the same seed differ")
	}
	if bytes.Equal(a, other) {
		t.Error("another seed makes the same log")
	}
	c := config(1)
	c.Seed = 2
	if bytes.Equal(a, events(t, c)) {
		t.Error("another seed of ids makes the same log")
	}
}

// fold reads a log, checks its order, and returns what it says of requests.
func fold(t testing.TB, log []byte) (*schema.State, map[schema.RequestID][]schema.Type) {
	t.Helper()
	state, story := schema.NewState(), map[schema.RequestID][]schema.Type{}
	var before schema.Stored
	err := ReadLog(bytes.NewReader(log), func(e *schema.Stored) error {
		if e.Seq != before.Seq+1 || e.StoredAt < before.StoredAt || e.Time > e.StoredAt {
			t.Fatalf("event %d (%s) is stored at %d, happened at %d, after %d at %d", e.Seq, e.Type, e.StoredAt, e.Time, before.Seq, before.StoredAt)
		}
		if before = *e; e.Request != "" {
			story[e.Request] = append(story[e.Request], e.Type)
		}
		state.Apply(e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return state, story
}

func TestTheLogTellsWhatHappened(t *testing.T) {
	c := seedConfig(t, 6, time.Minute, 1)
	c.Capped, c.MaxQueueWait = true, 5*time.Second
	c.ClientTimeout = 8 * time.Second
	c.Latency = DefaultLatency()
	refusals := 0
	c.Admit = func(a *Arrival) Decision {
		if a.Index%9 == 8 {
			refusals++
			return Decision{Refuse: true, RetryAfter: time.Second, Bound: 5 * time.Second, Predicted: time.Second, Note: "ninth"}
		}
		return Decision{Note: "welcome"}
	}
	var log bytes.Buffer
	c.Events = &log
	_, rows := simulate(t, c)
	state, story := fold(t, log.Bytes())
	if len(state.Requests) != 0 || len(state.Workers) != 0 {
		t.Errorf("%d requests and %d workers are left", len(state.Requests), len(state.Workers))
	}
	seen := map[record.Outcome]int{}
	for i := range rows {
		r := &rows[i]
		seen[r.Outcome]++
		got := slices.DeleteFunc(story[schema.RequestID(r.ID)], func(x schema.Type) bool { return x == schema.Preempted })
		var want [][]schema.Type
		switch {
		case r.Outcome == record.OK:
			want = [][]schema.Type{{"received", "admitted", "accepted", "dispatched", "prefill_started", "first_token", "finished", "delivered"}}
		case r.Reason == string(schema.RefusedSLO):
			want = [][]schema.Type{{"received", "refused"}}
			if r.RetryAfter != time.Second || r.Bound != 5*time.Second || r.Predicted != time.Second || r.Decision != "ninth" || r.E2E != c.Latency.Request {
				t.Errorf("%+v", r)
			}
		case r.Outcome == record.Shed:
			want = [][]schema.Type{{"received", "admitted", "accepted", "failed", "delivered"}}
			if r.Reason != "timeout" || r.E2E < 5*time.Second || r.E2E > 5*time.Second+tickEvery+time.Millisecond {
				t.Errorf("%+v", r)
			}
		case r.Outcome == record.Timeout:
			want = [][]schema.Type{
				{"received", "admitted", "accepted", "dispatched", "prefill_started", "delivered", "cancel_requested", "cancelled"},
				{"received", "admitted", "accepted", "dispatched", "prefill_started", "first_token", "delivered", "cancel_requested", "cancelled"},
				{"received", "admitted", "accepted", "dispatched", "prefill_started", "first_token", "delivered", "cancel_requested", "finished"},
			}
			if r.E2E != c.ClientTimeout {
				t.Errorf("%+v", r)
			}
		}
		if !slices.ContainsFunc(want, func(w []schema.Type) bool { return slices.Equal(w, got) }) {
			t.Errorf("request %d (%s %s): %v, want %v", i, r.Outcome, r.Reason, got, want)
		}
	}
	if seen[record.OK] == 0 || seen[record.Timeout] == 0 || seen[record.Shed] <= refusals || refusals == 0 {
		t.Errorf("%v, %d refused", seen, refusals)
	}
	t.Logf("%v, %d refused", seen, refusals)
}

// With one worker that serves one at a time, answers come in the order of arrivals.
func TestFIFOKeepsOrder(t *testing.T) {
	c := seedConfig(t, 0.9, 10*time.Minute, 3)
	c.Batch.Mode, c.Batch.PrefixCache = batch.FIFO, false
	var ends []int
	c.Sink = func(r *record.Request) error {
		ends = append(ends, r.Index)
		return nil
	}
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(ends) < 400 || !slices.IsSorted(ends) {
		t.Errorf("%d answers, in the order %v", len(ends), ends)
	}
}

func TestSpeed(t *testing.T) {
	c, _ := oneToken(3, 1, 1, 1, func(*rand.Rand) int { return 1000 })
	c.Arrivals = at(0, 10*time.Second, 20*time.Second)
	c.Speeds = []Speed{{At: 10 * time.Second, Factor: 0.5}, {At: 15 * time.Second, Factor: 4}}
	_, rows := simulate(t, c)
	for i, want := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 2500 * time.Microsecond} {
		if rows[i].E2E != want {
			t.Errorf("request %d took %v, want %v", i, rows[i].E2E, want)
		}
	}
}

// Rates of a run that is cut off after so many requests are of the time in which they came.
func TestRequestsEndTheRun(t *testing.T) {
	c := seedConfig(t, 1, time.Hour, 1)
	c.Requests = 100
	run, rows := simulate(t, c)
	if last := rows[len(rows)-1].Intended; len(rows) != 100 || run.Length <= last || run.Length > last+10*time.Second {
		t.Errorf("%d requests, the last after %v, in %v", len(rows), last, run.Length)
	}
}

func TestTimeouts(t *testing.T) {
	slow := func(read, client time.Duration) []record.Request {
		c, _ := oneToken(4, 1, 1, 1, func(*rand.Rand) int { return 1000 })
		c.Arrivals = at(0, 0, 0, 0)
		c.Source = source(func(i int) workload.Request { return workload.Request{Prompt: prompt(i, 1000), Cap: 3, Output: 3} })
		c.Profile = engine(func(int, int, int) time.Duration { return time.Second })
		c.ReadTimeout, c.ClientTimeout = read, client
		_, rows := simulate(t, c)
		return rows
	}
	check := func(rows []record.Request, outcomes ...record.Outcome) {
		t.Helper()
		for i, want := range outcomes {
			if rows[i].Outcome != want {
				t.Errorf("request %d: %+v, want %s", i, rows[i], want)
			}
		}
	}
	// Three steps of a second each, one after the other; who hangs up is not served.
	rows := slow(0, 5500*time.Millisecond)
	check(rows, record.OK, record.Timeout, record.Timeout, record.Timeout)
	if rows[1].E2E != 5500*time.Millisecond || rows[1].TTFT != 4*time.Second || rows[1].OutputTokens != 2 || rows[2].TTFT != -1 || rows[2].Queued != -1 {
		t.Errorf("%+v\n%+v", rows[1], rows[2])
	}
	// Silence counts from the last token.
	rows = slow(5*time.Second, 0)
	check(rows, record.OK, record.OK, record.Timeout, record.Timeout)
	if rows[1].E2E != 6*time.Second || rows[2].E2E != 5*time.Second {
		t.Errorf("%+v\n%+v", rows[1], rows[2])
	}
	rows = slow(5*time.Second, 100*time.Second)
	check(rows, record.OK, record.OK, record.Timeout, record.Timeout)
	check(slow(0, 0), record.OK, record.OK, record.OK, record.OK)
}

func TestDrainCensors(t *testing.T) {
	c, _ := oneToken(3, 1, 1, 1, func(*rand.Rand) int { return 1000 })
	c.Arrivals, c.Length, c.Drain = at(0, 0, 0), time.Millisecond, 17*time.Millisecond
	_, rows := simulate(t, c)
	for i, want := range []record.Outcome{record.OK, record.Censored, record.Censored} {
		if rows[i].Outcome != want || want == record.Censored && rows[i].E2E != c.Length+c.Drain {
			t.Errorf("%+v, want %s", rows[i], want)
		}
	}
}

// Without a drain, what is open when arrivals end is cut then.
func TestNoDrain(t *testing.T) {
	c, _ := oneToken(3, 1, 1, 1, func(*rand.Rand) int { return 1000 })
	c.Arrivals, c.Length, c.Drain = at(0, 0, 0), 18*time.Millisecond, 0
	_, rows := simulate(t, c)
	for i, want := range []record.Outcome{record.OK, record.Censored, record.Censored} {
		if rows[i].Outcome != want || want == record.Censored && rows[i].E2E != c.Length {
			t.Errorf("%+v, want %s", rows[i], want)
		}
	}
}

func TestAStoppedRunIsPartial(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	c := seedConfig(t, 2, time.Hour, 1)
	n, outcomes := 0, map[record.Outcome]int{}
	c.Sink = func(r *record.Request) error {
		if n++; n == 100 {
			stop()
		}
		outcomes[r.Outcome]++
		return nil
	}
	run, err := Run(ctx, c)
	if err != nil || !run.Partial || run.Wall >= time.Hour || outcomes[record.Censored] == 0 {
		t.Errorf("%+v, %v, %v", run, outcomes, err)
	}
}

func TestWhatFails(t *testing.T) {
	wrong := errors.New("sink")
	c := seedConfig(t, 2, time.Minute, 1)
	c.Sink = func(*record.Request) error { return wrong }
	if _, err := Run(t.Context(), c); !errors.Is(err, wrong) {
		t.Error(err)
	}
	c = seedConfig(t, 2, time.Minute, 1)
	c.Events = failing{wrong}
	if _, err := Run(t.Context(), c); !errors.Is(err, wrong) {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"source":       func(c *Config) { c.Source = nil },
		"workers":      func(c *Config) { c.Workers = 0 },
		"requests":     func(c *Config) { c.Requests = -1 },
		"tail":         func(c *Config) { c.Requests, c.Tail = 9, time.Second },
		"length":       func(c *Config) { c.Length = 0 },
		"warmup":       func(c *Config) { c.Warmup = time.Hour },
		"read_timeout": func(c *Config) { c.ReadTimeout = -1 },
		"speeds":       func(c *Config) { c.Speeds = []Speed{{At: 1, Factor: 0}} },
		"max_open":     func(c *Config) { c.MaxOpen = -1 },
		"max_waiting":  func(c *Config) { c.MaxWaiting = -1 },
		"kv_pages":     func(c *Config) { c.Batch.KVPages = 0 },
		"profile":      func(c *Config) { c.Profile = engine(func(int, int, int) time.Duration { return 0 }) },
	} {
		c := seedConfig(t, 2, time.Minute, 1)
		spoil(&c)
		if _, err := Run(t.Context(), c); !errors.Is(err, ErrConfig) || !bytes.Contains([]byte(err.Error()), []byte(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ReadLog(bytes.NewReader([]byte("{}\n")), func(*schema.Stored) error { return nil }); !errors.Is(err, ErrLog) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// BenchmarkSeedWorkload is what simulating the seed's workload costs: go test -bench SeedWorkload ./bench/sim. It reports
// answered requests per second of real time.
func BenchmarkSeedWorkload(b *testing.B) {
	for _, k := range []struct {
		name    string
		rate    float64
		workers int
		edit    func(*Config)
	}{
		{"fifo", 0.9, 1, func(c *Config) { c.Batch.Mode, c.Batch.PrefixCache = batch.FIFO, false }},
		{"continuous", 1.2, 1, func(c *Config) { c.Batch.PrefixCache = false }},
		{"continuous+cache", 1.9, 1, func(*Config) {}},
		{"16 workers", 1.9 * 16, 16, func(*Config) {}},
		{"events", 1.9, 1, func(c *Config) { c.Events = io.Discard }},
	} {
		b.Run(k.name, func(b *testing.B) {
			done := 0
			for b.Loop() {
				c := seedConfig(b, k.rate, time.Duration(1e9*2000/k.rate), 1)
				c.Workers, c.Latency = k.workers, DefaultLatency()
				k.edit(&c)
				c.Sink = func(r *record.Request) error {
					if r.Outcome == record.OK {
						done++
					}
					return nil
				}
				if _, err := Run(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "completed/s")
		})
	}
}
