package overhead

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

func options() Options {
	o := DefaultOptions()
	o.Executable = "/bin/true"
	return o
}

func TestOptionsNameTheKey(t *testing.T) {
	o := options()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(*Options){
		"rate":          func(o *Options) { o.Rate = 0 },
		"output-tokens": func(o *Options) { o.OutputTokens = 0 },
		"search-to":     func(o *Options) { o.SearchTo = 1 },
		"executable":    func(o *Options) { o.Executable = "" },
	} {
		o := options()
		change(&o)
		if err := o.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestPromptsAndDirect(t *testing.T) {
	o := options()
	ps, err := makePrompts(&o)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range ps {
		if len(p.tokens) != o.PromptTokens || !json.Valid(p.body) {
			t.Fatalf("%d tokens, body %.50s", len(p.tokens), p.body)
		}
		seen[string(p.body)] = true
	}
	if len(seen) != prompts {
		t.Fatalf("%d different prompts", len(seen))
	}
	times, err := direct(&o, ps)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range times {
		if d <= 0 || d > time.Second {
			t.Fatalf("prompt %d: %v", i, d)
		}
	}
}

func TestHighest(t *testing.T) {
	for limit, want := range map[float64]float64{1037: 1000, 1050: 1050, 1999: 1950, 399: 350, 40: 0, 1e9: 4000, 400: 400} {
		tries := 0
		got, err := highest(400, 200, 4000, 50, func(rate float64) (bool, error) { tries++; return rate <= limit, nil })
		if err != nil || got != want || tries > 25 {
			t.Errorf("limit %v: %v after %d tries, want %v; %v", limit, got, tries, want, err)
		}
	}
	broken := errors.New("broken")
	if _, err := highest(400, 200, 4000, 50, func(float64) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

func TestQuantile(t *testing.T) {
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i))
	}
	q := exact(times)
	if q != (Quantiles{P50: 50, P90: 90, P99: 99, P999: 100, Max: 100}) || times[0] != 100 {
		t.Fatalf("%+v", q)
	}
	if m := median([]time.Duration{3, 1, 2}); m != 2 {
		t.Fatal(m)
	}
}

func TestStages(t *testing.T) {
	srv := streamstest.Start(t)
	c := srv.Client(t)
	publish := func(e schema.Event) {
		t.Helper()
		e.Source = "test"
		if _, err := c.PublishEvent(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
	ids := []schema.RequestID{"01920000-0000-7000-8000-000000000000", "01920000-0000-7000-8000-000000000001", "01920000-0000-7000-8000-000000000002"}
	for i, id := range ids {
		client := "latency-" + id[len(id)-1:]
		if i == 2 {
			client = "warmup-0"
		}
		k := int64(i + 1)
		publish(schema.Event{Type: schema.Received, Time: 1000, Request: id, Ingress: "i", Pool: "p", Tenant: "t", ClientRequest: string(client)})
		publish(schema.Event{Type: schema.Admitted, Time: 1000 + 10*k, Request: id, Ingress: "i", Pool: "p", Tenant: "t", RequestSeq: 1})
		publish(schema.Event{Type: schema.Accepted, Time: 1020, Request: id, Ingress: "i", Pool: "p", Tenant: "t", RequestSeq: 1})
		publish(schema.Event{Type: schema.Dispatched, Time: 1030, Request: id, Attempt: 1, Worker: "w"})
		publish(schema.Event{Type: schema.PrefillStarted, Time: 1050, Request: id, Attempt: 1, Worker: "w"})
		publish(schema.Event{Type: schema.FirstToken, Time: 1060, Request: id, Attempt: 1, Worker: "w"})
		publish(schema.Event{Type: schema.Finished, Time: 1090, Request: id, Attempt: 1, Worker: "w", Reason: "length"})
		if i != 1 { // one is not complete
			publish(schema.Event{Type: schema.Delivered, Time: 2000, Request: id, Ingress: "i", Reason: "complete", TTFT: 75, E2E: 100})
		}
	}
	got, err := stages(t.Context(), srv.URL, "latency-", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{10, 10, 10, 20, 10, 15, 75, 30}
	for i, s := range got {
		if s.P50 != want[i] || s.P99 != want[i] {
			t.Errorf("%s: %d, want %d", s.Name, s.P50, want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d stages", len(got))
	}
	last, err := lastEvent(t.Context(), srv.URL)
	if err != nil || last != 23 {
		t.Fatalf("%d, %v", last, err)
	}
	if got, err := stages(t.Context(), srv.URL, "latency-", last); err != nil || got != nil {
		t.Fatalf("%v, %v", got, err)
	}
}

//go:noinline
func burn(ctx context.Context) (x uint64) {
	for ctx.Err() == nil {
		for range 1 << 20 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	return x
}

func TestProfile(t *testing.T) {
	var buf bytes.Buffer
	if err := pprof.StartCPUProfile(&buf); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	burn(ctx)
	pprof.StopCPUProfile()
	samples, err := parseProfile(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var mine, all time.Duration
	for _, s := range samples {
		all += s.cpu
		if strings.Contains(strings.Join(s.stack, " "), "overhead.burn") {
			mine += s.cpu
		}
	}
	if all < 50*time.Millisecond || mine < all/2 {
		t.Fatalf("%v of %v in the function that takes all the time", mine, all)
	}
	if _, err := parseProfile([]byte("no")); !errors.Is(err, errProfile) {
		t.Fatal(err)
	}
}

func TestSummaryOfAProfile(t *testing.T) {
	p := summarize([]sample{
		{[]string{"internal/runtime/syscall.Syscall6", "net.(*conn).Write", "github.com/valyala/fasthttp.(*Server).serveConn"}, 30},
		{[]string{"runtime.mallocgc", "github.com/cadence-slo/cadence/ingress.(*Server).relay", "github.com/valyala/fasthttp.(*Server).serveConn"}, 50},
		{[]string{"runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker"}, 20},
	})
	want := []Share{{"ingress", 0.5}, {"HTTP (fasthttp, fiber)", 0.3}, {"garbage collector", 0.2}}
	for i, s := range want {
		if p.Owners[i] != s {
			t.Fatalf("%+v", p.Owners)
		}
	}
	if p.Kernel != 0.3 || p.CPU != 100 || p.Hottest[0].Name != "runtime.mallocgc" {
		t.Fatalf("%+v", p)
	}
}

func TestReportWrites(t *testing.T) {
	s := Stretch{Offered: 200, Length: time.Second, Load: &load.Summary{Requests: 10, Outcomes: map[load.Outcome]int{load.OK: 9}}, Cost: Cost{Services: time.Millisecond},
		Profile: &Profile{CPU: time.Second, Owners: []Share{{"ingress", 0.5}}}}
	r := Report{Machine: Machine{CPU: "a CPU", Cores: 2}, Latency: Latency{Stretch: s, Added: Quantiles{P50: 700 * time.Microsecond}, TargetP50: 800 * time.Microsecond,
		Stages: []Stage{{Name: "a stage", P50: 5 * time.Microsecond}}}, Throughput: &Throughput{Sustained: 950, Target: 1000, Stretches: []Stretch{s}}}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a CPU, 2 cores", "0.700 ms", "a stage", "0.005 ms", "950 requests/s", "MISSED", "90.00 %", "100 µs", "ingress 50.0 %"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	t.Log(b.String())
}

// BenchmarkDirect is what the engine and its planner take for one prompt: go test -bench Direct ./bench/overhead.
func BenchmarkDirect(b *testing.B) {
	o := options()
	ps, err := makePrompts(&o)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := direct(&o, ps[:1]); err != nil {
			b.Fatal(err)
		}
	}
}
