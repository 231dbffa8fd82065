package trainer_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/trainer"
	"pgregory.net/rapid"
)

// bits is randomness for ids.
type bits struct{ rng *rand.Rand }

func (b bits) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b.rng.Uint32())
	}
	return len(p), nil
}

func newID(t fataler, at time.Time, rng *rand.Rand) schema.RequestID {
	id, err := schema.NewID(at, bits{rng})
	if err != nil {
		t.Fatal(err)
	}
	return schema.RequestID(id)
}

// whole is a trace of an answer that was complete after a second, where two were simulated.
func wholeTrace() trainer.Trace {
	x := make([]float32, feature.Count)
	x[feature.Running], x[feature.Waiting] = 1, 0.5
	return trainer.Trace{Request: "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01", Arrived: day.Add(25*time.Minute + 59*time.Second), Pool: "p", Tenant: "t",
		Kind: schema.KindChat, Class: schema.Guaranteed, Features: x, Physics: 2 * time.Second, Propensity: 0.25, PromptTokens: 10, CapTokens: 20,
		OutputTokens: 5, E2E: time.Second, Delivered: schema.OutcomeComplete, Worker: "w1", Fingerprint: "f"}
}

func TestRowOfATrace(t *testing.T) {
	whole := wholeTrace()
	row, err := whole.Row(trainer.DefaultRounding())
	if err != nil {
		t.Fatal(err)
	}
	minutes := int(day.Unix() / 60)
	if row.Label != math.Log(0.5) || row.Predicted != 2 || row.Weight != 4 || row.Class != 1 || row.Load != 1.5 || row.Censored || !row.At.Equal(whole.Arrived) ||
		row.Run != minutes+25 || row.Round != (minutes+25)/10 || !slices.Equal(row.Features, whole.Features) {
		t.Errorf("%+v", row)
	}
	for name, c := range map[string]struct {
		change   func(*trainer.Trace)
		skip     string
		censored bool
	}{
		"its client left":      {func(t *trainer.Trace) { t.Delivered = schema.OutcomeDisconnected }, "", true},
		"it waited too long":   {func(t *trainer.Trace) { t.Delivered, t.Failure = schema.OutcomeError, schema.FailedTimeout }, "", true},
		"its deadline passed":  {func(t *trainer.Trace) { t.Delivered, t.Failure = schema.OutcomeError, schema.FailedDeadline }, "", true},
		"no class":             {func(t *trainer.Trace) { t.Class, t.Propensity = "", 0 }, "", false},
		"its engine failed":    {func(t *trainer.Trace) { t.Delivered, t.Failure = schema.OutcomeError, schema.FailedEngine }, "another reason", false},
		"nobody says why":      {func(t *trainer.Trace) { t.Delivered = schema.OutcomeError }, "another reason", false},
		"fewer features":       {func(t *trainer.Trace) { t.Features = t.Features[1:] }, "another version", false},
		"nothing simulated":    {func(t *trainer.Trace) { t.Physics = 0 }, "simulated", false},
		"no latency":           {func(t *trainer.Trace) { t.E2E = 0 }, "no latency", false},
		"a feature is no one":  {func(t *trainer.Trace) { t.Features[3] = float32(math.NaN()) }, "not a row", false},
		"a feature is endless": {func(t *trainer.Trace) { t.Features[3] = float32(math.Inf(1)) }, "not a row", false},
	} {
		x := wholeTrace()
		c.change(&x)
		row, err := x.Row(trainer.DefaultRounding())
		if c.skip != "" {
			if !errors.Is(err, trainer.ErrSkip) || !strings.Contains(err.Error(), c.skip) {
				t.Errorf("%s: %v, want %q", name, err, c.skip)
			}
			continue
		}
		if err != nil || row.Censored != c.censored || row.Label != math.Log(0.5) {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
		if x.Propensity == 0 && row.Weight != 1 || x.Class == "" && row.Class != 0 {
			t.Errorf("%s: %+v", name, row)
		}
	}
	x := wholeTrace()
	x.Propensity = 1e-6
	if row, err := x.Row(trainer.DefaultRounding()); err != nil || row.Weight != 100 {
		t.Errorf("of one in a million the weight is %v: %v", row.Weight, err)
	}
}

// A run is in one round, whatever the length of rounds and the time, also before 1970.
func TestRunsAreInOneRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := trainer.Rounding{Minutes: rapid.IntRange(1, 90).Draw(t, "minutes")}
		of := map[int]int{}
		for range 50 {
			x := wholeTrace()
			x.Arrived = time.Unix(rapid.Int64Range(-20_000, 20_000).Draw(t, "at"), 0)
			row, err := x.Row(r)
			if err != nil {
				t.Fatal(err)
			}
			if round, ok := of[row.Run]; ok && round != row.Round {
				t.Fatalf("run %d is in rounds %d and %d", row.Run, round, row.Round)
			}
			of[row.Run] = row.Round
			if start := int64(row.Round) * int64(r.Minutes) * 60; x.Arrived.Unix() < start || x.Arrived.Unix() >= start+int64(r.Minutes)*60 {
				t.Fatalf("%v is in round %d of %d minutes", x.Arrived.Unix(), row.Round, r.Minutes)
			}
		}
	})
	for _, n := range []int{0, -1, 10081} {
		expect(t, trainer.ErrConfig, func() error { return trainer.Rounding{Minutes: n}.Validate() })
	}
}

// events are those of one request that are looked at.
func events(id schema.RequestID, pool string, features []float32, workers ...schema.WorkerID) []*schema.Event {
	e := []*schema.Event{{Type: schema.Admitted, Request: id, Pool: pool, Tenant: "t", Kind: schema.KindChat, Class: schema.Guaranteed, Features: features,
		Physics: 2 * time.Second, Propensity: 0.5, PromptTokens: 10, MaxTokens: 20}}
	for i, w := range workers {
		e = append(e, &schema.Event{Type: schema.Dispatched, Request: id, Pool: pool, Attempt: uint32(i + 1), Worker: w})
	}
	return append(e, &schema.Event{Type: schema.Delivered, Request: id, Pool: pool, Reason: string(schema.OutcomeComplete), E2E: time.Second, OutputTokens: 5})
}

// Whatever lies between them, a request's events make one trace, of the last attempt's worker; those of other pools, without features, or
// without an end make none.
func TestLogMakesTraces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 1))
		up := []*schema.Event{{Type: schema.WorkerUp, Worker: "w1", Pool: "p", Fingerprint: "f1"}, {Type: schema.WorkerUp, Worker: "w2", Pool: "p", Fingerprint: "f2"}}
		want := map[schema.RequestID]trainer.Trace{}
		var writers [][]*schema.Event
		open := 0
		for i := range rapid.IntRange(1, 20).Draw(t, "requests") {
			at := day.Add(time.Duration(i) * time.Minute)
			id := newID(t, at, rng)
			x := []float32{float32(i), 1}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				writers = append(writers, events(id, "q", x, "w1"))
			case 1:
				writers = append(writers, events(id, "p", nil, "w1"))
			case 2:
				e := events(id, "p", x, "w1")
				writers = append(writers, e[:len(e)-1])
				open++
			case 3:
				e := events(id, "p", x)
				last := e[len(e)-1]
				last.Reason, last.Message = string(schema.OutcomeError), string(schema.FailedTimeout)
				writers = append(writers, e)
				want[id] = trainer.Trace{Request: id, Arrived: at, Features: x, Delivered: schema.OutcomeError, Failure: schema.FailedTimeout}
			default:
				writers = append(writers, events(id, "p", x, "w1", "w2"))
				want[id] = trainer.Trace{Request: id, Arrived: at, Features: x, Delivered: schema.OutcomeComplete, Worker: "w2", Fingerprint: "f2"}
			}
		}
		got := map[schema.RequestID]trainer.Trace{}
		log := trainer.NewLog("p", func(x *trainer.Trace) error {
			if _, twice := got[x.Request]; twice {
				t.Fatalf("%s twice", x.Request)
			}
			got[x.Request] = *x
			return nil
		})
		add := func(e *schema.Event) {
			if err := log.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range up {
			add(e)
		}
		for len(writers) > 0 { // any interleaving
			i := rng.IntN(len(writers))
			add(writers[i][0])
			if writers[i] = writers[i][1:]; len(writers[i]) == 0 {
				writers = slices.Delete(writers, i, i+1)
			}
		}
		if len(got) != len(want) || log.Open() != open {
			t.Fatalf("%d traces, want %d; %d open, want %d", len(got), len(want), log.Open(), open)
		}
		for id, w := range want {
			w.Pool, w.Tenant, w.Kind, w.Class, w.Physics, w.Propensity, w.PromptTokens, w.CapTokens = "p", "t", schema.KindChat, schema.Guaranteed, 2*time.Second, 0.5, 10, 20
			w.OutputTokens, w.E2E = 5, time.Second
			if g := got[id]; fmt.Sprint(g) != fmt.Sprint(w) {
				t.Fatalf("got  %+v\nwant %+v", g, w)
			}
		}
	})
	stop := errors.New("stop")
	log := trainer.NewLog("", func(*trainer.Trace) error { return stop })
	for i, e := range events(newID(t, day, rand.New(rand.NewPCG(1, 1))), "any", []float32{1}) {
		if err := log.Add(e); errors.Is(err, stop) != (i == 1) {
			t.Errorf("event %d: %v", i, err)
		}
	}
}

// Rows are kept by engine; what tells of none goes to the engine before it, or to the one that is asked for.
func TestCollectorKeepsEnginesApart(t *testing.T) {
	collect := func(force string) *trainer.Collector {
		c, err := trainer.NewCollector(100, 1, trainer.DefaultRounding(), force)
		if err != nil {
			t.Fatal(err)
		}
		c.Mark(day.Add(30 * time.Minute))
		for i, of := range []struct{ worker, fingerprint string }{{"", ""}, {"w1", "a"}, {"w2", "b"}, {"", ""}, {"w2", "b"}, {"w9", ""}, {"w2", "b"}} {
			x := wholeTrace()
			x.Arrived, x.Worker, x.Fingerprint, x.Propensity = day.Add(time.Duration(10*i)*time.Minute), schema.WorkerID(of.worker), of.fingerprint, 1
			if of.worker == "" {
				x.Delivered, x.Failure = schema.OutcomeError, schema.FailedTimeout
			}
			c.Add(&x)
		}
		bad := wholeTrace()
		bad.E2E = 0
		c.Add(&bad)
		return c
	}
	for force, want := range map[string]struct {
		of                  string
		seen, censored, new int
		skipped             map[string]int
	}{
		"":  {"b", 4, 1, 2, map[string]int{"before any engine": 1, "of a worker whose fingerprint is not known": 1, "no latency": 1}},
		"b": {"b", 6, 2, 3, map[string]int{"of another engine": 1, "no latency": 1}},
		"c": {"c", 3, 2, 1, map[string]int{"of another engine": 4, "no latency": 1}},
	} {
		c := collect(force)
		e, err := c.Engine()
		if err != nil {
			t.Fatal(err)
		}
		if e.Fingerprint != want.of || e.Seen != want.seen || e.Censored != want.censored || e.New != want.new || len(e.Rows()) != want.seen {
			t.Errorf("%q: %+v, want %+v", force, e, want)
		}
		if got := c.Skipped(); fmt.Sprint(got) != fmt.Sprint(want.skipped) {
			t.Errorf("%q: skipped %v, want %v", force, got, want.skipped)
		}
		if n := e.Lengths().Classes; len(n) != 1 || math.Abs(n[0].Risk[0]-float64(want.seen)) > 0.01*float64(want.seen) {
			t.Errorf("%q: lengths of %d classes, the first of %v answers", force, len(n), n[0].Risk[0])
		}
		// Whatever number an ingress gives a class, it has them.
		table := length.New(256, 0)
		if added, err := table.Borrow(e.Lengths(), 50, 200); err != nil || !added || table.Weight(255) == 0 {
			t.Errorf("%q: class 255 has borrowed %v: %v", force, table.Weight(255), err)
		}
	}
	// An engine that has taken another one's place is learned of, however much there is of the old one.
	for marked, want := range map[bool]string{true: "c", false: "a"} {
		c, err := trainer.NewCollector(100, 1, trainer.DefaultRounding(), "")
		if err != nil {
			t.Fatal(err)
		}
		if marked {
			c.Mark(day.Add(4 * time.Minute))
		}
		for i, fingerprint := range []string{"a", "a", "a", "a", "c", "c"} {
			x := wholeTrace()
			x.Arrived, x.Worker, x.Fingerprint = day.Add(time.Duration(i+1)*time.Minute), "w", fingerprint
			c.Add(&x)
		}
		if e, err := c.Engine(); err != nil || e.Fingerprint != want {
			t.Errorf("marked %v: %+v, %v, want %s", marked, e, err, want)
		}
	}
	none, err := trainer.NewCollector(1, 1, trainer.DefaultRounding(), "")
	if err != nil {
		t.Fatal(err)
	}
	bad := wholeTrace()
	bad.Features = nil
	none.Add(&bad)
	if _, err := none.Engine(); !errors.Is(err, trainer.ErrEngine) || !strings.Contains(err.Error(), "1 features of another version") {
		t.Errorf("of nothing: %v", err)
	}
	expect(t, trainer.ErrConfig, func() error { _, err := trainer.NewCollector(0, 1, trainer.DefaultRounding(), ""); return err })
	expect(t, trainer.ErrConfig, func() error { _, err := trainer.NewCollector(1, 1, trainer.Rounding{}, ""); return err })
}
