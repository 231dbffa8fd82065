package load

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
)

// script is a workload whose requests' kinds tell a server what to do with them, in turns.
type script struct {
	kinds []string
	times []time.Duration // of a trace; nil: none
}

func (s script) Name() string { return "script" }
func (s script) Describe() json.RawMessage {
	return json.RawMessage(`{"turns":` + fmt.Sprint(len(s.kinds)) + `}`)
}
func (s script) SLOs() map[string]record.SLO {
	return map[string]record.SLO{"gold": {E2E: 10 * time.Second}, "": {TTFT: time.Nanosecond}}
}

func (s script) Request(i int) workload.Request {
	if s.times != nil && i >= len(s.times) {
		panic("beyond the trace")
	}
	r := workload.Request{Index: i, Prompt: []int32{int32(i), 7, 8}, System: -1, Cap: 20, Output: 10, Kind: s.kinds[i%len(s.kinds)], Tenant: s.kinds[i%len(s.kinds)]}
	if i%2 == 0 {
		r.Class = "gold"
	}
	return r
}

type trace struct{ script }

func (t trace) Arrivals() iter.Seq[time.Duration] { return slices.Values(t.times) }

// actor is a server that does what X-Tenant says. Stalled requests go on until their client leaves.
func actor(t *testing.T) (url string, stalled *atomic.Int64) {
	t.Helper()
	stalled = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		say := func(s string) {
			if _, err := io.WriteString(w, s); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
		}
		refuse := func(status int, retry, body string) {
			w.Header().Set("Content-Type", "application/json")
			if retry != "" {
				w.Header().Set("Retry-After", retry)
			}
			w.WriteHeader(status)
			say(body)
		}
		what := r.Header.Get("X-Tenant")
		switch what {
		case "reason":
			refuse(503, "2", `{"error":{"message":"full","reason":"capacity"}}`)
			return
		case "busy":
			refuse(503, "3", "busy")
			return
		case "limit":
			refuse(429, "", `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`)
			return
		case "down":
			refuse(503, "", "no backend")
			return
		case "unloaded":
			refuse(503, "", `{"error":{"message":"the model is not loaded","code":"model_not_loaded"}}`)
			return
		case "overloaded":
			refuse(503, "1", `{"error":{"message":"overloaded","code":"overloaded"}}`)
			return
		case "wrong":
			refuse(400, "", `{"error":{"message":"no","code":"bad"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		text := func(s string) string {
			return `data: {"id":"cmpl-1","choices":[{"index":0,"text":"` + s + `"}],"usage":null}` + "\n\n"
		}
		switch what {
		case "late":
			say(`data: {"error":{"message":"too late","reason":"deadline"}}` + "\n\n")
		case "hold":
			say(`data: {"error":{"message":"not now","reason":"worker_busy","retry_after":4}}` + "\n\n")
		case "fault":
			say(text("a") + `data: {"error":{"message":"worker died","reason":"worker_lost"}}` + "\n\n")
		case "truncate":
			say(text("a"))
		case "stall":
			say(text("a"))
			stalled.Add(1)
			<-r.Context().Done()
		case "short":
			say(text("a") + `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9}}` + "\n\ndata: [DONE]\n\n")
		case "silent":
			say(text("a") + "data: [DONE]\n\n")
		default:
			if !json.Valid(body) || r.URL.Path != "/v1/completions" {
				t.Errorf("%s %s", r.URL, body)
			}
			say(text("a"))
			say(text("bcd"))
			say(`data: {"choices":[{"index":0,"text":"","finish_reason":"length"}],"usage":null}` + "\n\n" +
				`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":10,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":2}}}` + "\n\ndata: [DONE]\n\n")
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, stalled
}

func trial(t *testing.T, url string, s workload.Source, change func(*ClientConfig)) (*Trial, *[]record.Request) {
	t.Helper()
	rows := new([]record.Request)
	tr := &Trial{
		Client: newClient(t, url, change), Form: &Form{Endpoint: Completions, Model: "m", Name: "t"}, Source: s, Drain: 5 * time.Second,
		Sink: func(r *record.Request) error { *rows = append(*rows, *r); return nil },
		Run:  record.Run{ID: "a", LagBudget: time.Hour},
	}
	return tr, rows
}

// Whatever a server does, every request that was offered is in the books, under what it was.
func TestWhatServersDo(t *testing.T) {
	url, _ := actor(t)
	s := script{kinds: []string{"ok", "reason", "busy", "limit", "down", "unloaded", "overloaded", "wrong", "late", "hold", "fault", "truncate"}}
	tr, rows := trial(t, url, s, nil)
	tr.Arrivals, tr.Run.Length, tr.Run.Warmup, tr.Run.Tail = arrival.Constant{}.Times(0, 200, 240*time.Millisecond), 240*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
	run, err := tr.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(*rows) != 48 || !run.Valid() || run.Partial || run.Workload != "script" || run.Model != "m" || run.PromptTokens != -1 || run.Wall <= 0 ||
		run.LagMax <= 0 || run.LagP99 > run.LagMax || run.SLOs["gold"].E2E != 10*time.Second || run.Time.IsZero() {
		t.Fatalf("%d rows, %+v", len(*rows), run)
	}
	slices.SortFunc(*rows, func(a, b record.Request) int { return cmp.Compare(a.Index, b.Index) })
	for i, r := range *rows {
		want := map[string][2]string{
			"ok": {"ok", ""}, "reason": {"shed", "capacity"}, "busy": {"shed", "http_503"}, "limit": {"shed", "rate_limit_exceeded"}, "down": {"error", "http_503"}, "unloaded": {"error", "model_not_loaded"}, "overloaded": {"shed", "overloaded"},
			"wrong": {"error", "bad"}, "late": {"shed", "deadline"}, "hold": {"shed", "worker_busy"}, "fault": {"error", "worker_lost"}, "truncate": {"error", "truncated"},
		}[r.Kind]
		if r.Index != i || r.Kind != s.kinds[i%len(s.kinds)] || string(r.Outcome) != want[0] || r.Reason != want[1] || r.CapTokens != 10 || r.E2E <= 0 ||
			r.Intended != time.Duration(i)*5*time.Millisecond || r.Phase != run.PhaseAt(r.Intended) || (r.Class == "gold") != (i%2 == 0) {
			t.Fatalf("%+v, want %v", r, want)
		}
		switch r.Kind {
		case "ok":
			// Ten tokens in two events: the nine gaps between them are spread over the one between the events.
			if r.PromptTokens != 3 || r.CachedTokens != 2 || r.OutputTokens != 10 || len(r.ITL) != 9 || r.TTFT <= 0 || r.E2E < r.TTFT || run.Good(&r) != (r.Class == "gold") {
				t.Fatalf("%+v", r)
			}
		case "reason", "busy", "hold":
			if want := map[string]time.Duration{"reason": 2e9, "busy": 3e9, "hold": 4e9}[r.Kind]; r.RetryAfter != want || r.TTFT != -1 || r.PromptTokens != 3 {
				t.Fatalf("%+v", r)
			}
		}
	}
}

// What takes longer than the client waits is a time-out.
func TestTimeoutsAreInTheBooks(t *testing.T) {
	url, _ := actor(t)
	tr, rows := trial(t, url, script{kinds: []string{"stall"}}, func(c *ClientConfig) { c.Timeout = 100 * time.Millisecond })
	tr.Arrivals, tr.Run.Length = arrival.Constant{}.Times(0, 100, 30*time.Millisecond), 30*time.Millisecond
	if run, err := tr.Measure(t.Context()); err != nil || len(*rows) != 3 || !run.Valid() {
		t.Fatalf("%+v, %v", run, err)
	}
	for _, r := range *rows {
		if r.Outcome != record.Timeout || r.Reason != "" || r.E2E < 100*time.Millisecond {
			t.Errorf("%+v", r)
		}
	}
}

// What keeps the generator itself from sending says nothing about the server.
func TestTheGeneratorsOwnErrors(t *testing.T) {
	url, _ := actor(t)
	tr, rows := trial(t, url, script{kinds: []string{"ok"}}, nil)
	tr.Client.dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} // for documentation: no machine's
	tr.Arrivals, tr.Run.Length = arrival.Constant{}.Times(0, 100, 30*time.Millisecond), 30*time.Millisecond
	run, err := tr.Measure(t.Context())
	if err != nil || len(*rows) != 3 || !strings.Contains(strings.Join(run.Invalid, "; "), "the generator could not send 3 of 3 requests") {
		t.Fatalf("%+v, %v", run, err)
	}
	for _, r := range *rows {
		if r.Outcome != record.Error || r.Reason != "generator" || r.Err == "" {
			t.Errorf("%+v", r)
		}
	}
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL} {
		k := call{rec: &Record{}}
		if k.settle(t.Context(), fmt.Errorf("dial: %w", os.NewSyscallError("socket", errno))); k.rec.Outcome != ConnectError || k.rec.Reason != "generator" {
			t.Errorf("%v: %+v", errno, k.rec)
		}
	}
}

// What does not end within the drain is censored, and counts with the time that it was waited for.
func TestDrainedRequestsAreCensored(t *testing.T) {
	url, _ := actor(t)
	tr, rows := trial(t, url, script{kinds: []string{"stall"}}, nil)
	tr.Arrivals, tr.Run.Length, tr.Drain = arrival.Constant{}.Times(0, 100, 60*time.Millisecond), 60*time.Millisecond, 200*time.Millisecond
	run, err := tr.Measure(t.Context())
	if err != nil || run.Partial || !run.Valid() || len(*rows) != 6 {
		t.Fatalf("%+v, %v", run, err)
	}
	for _, r := range *rows {
		if r.Outcome != record.Censored || r.E2E < 200*time.Millisecond {
			t.Errorf("%+v", r)
		}
	}
}

// The drain begins where arrivals end, not at the last of them; without any, what is open then is cut.
func TestDrainBeginsAtTheLength(t *testing.T) {
	url, _ := actor(t)
	tr, rows := trial(t, url, script{kinds: []string{"stall"}}, nil)
	tr.Arrivals, tr.Run.Length, tr.Drain = func(yield func(time.Duration) bool) { yield(0) }, 200*time.Millisecond, 0
	if _, err := tr.Measure(t.Context()); err != nil || len(*rows) != 1 || (*rows)[0].Outcome != record.Censored || (*rows)[0].E2E < 200*time.Millisecond {
		t.Fatalf("%+v, %v", *rows, err)
	}
}

func TestTimesBetweenTokensAreLeftOut(t *testing.T) {
	url, _ := actor(t)
	tr, rows := trial(t, url, script{kinds: []string{"ok"}}, nil)
	tr.Arrivals, tr.Run.Length, tr.NoITL = arrival.Constant{}.Times(0, 100, 20*time.Millisecond), 20*time.Millisecond, true
	if _, err := tr.Measure(t.Context()); err != nil || len(*rows) != 2 || (*rows)[0].Outcome != record.OK || (*rows)[0].ITL != nil {
		t.Fatalf("%+v, %v", *rows, err)
	}
}

// Interrupted, a run is partial and says what came of all that was sent.
func TestInterruptedRunIsPartial(t *testing.T) {
	url, stalled := actor(t)
	tr, rows := trial(t, url, script{kinds: []string{"ok", "stall"}}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tr.Arrivals, tr.Run.Length, tr.Drain = arrival.Constant{}.Times(0, 200, time.Hour), time.Hour, time.Hour
	var seen []Progress
	tr.Every = time.Millisecond
	tr.Progress = func(p Progress) {
		if seen = append(seen, p); stalled.Load() >= 5 && p.Sent-p.InFlight >= 5 {
			cancel()
		}
	}
	run, err := tr.Measure(ctx)
	if err != nil || !run.Partial || !run.Valid() || run.Length != time.Hour || run.Wall > time.Minute {
		t.Fatalf("%+v, %v", run, err)
	}
	count := map[record.Outcome]int{}
	for _, r := range *rows {
		count[r.Outcome]++
	}
	last := seen[len(seen)-1]
	if count[record.OK] < 5 || count[record.Censored] < 5 || len(count) != 2 || len(*rows) < last.Sent || last.At <= 0 {
		t.Errorf("%v, %+v", count, last)
	}
}

// A trace is replayed at its own times, up to a length, and nothing is asked of it behind its end.
func TestTraceReplay(t *testing.T) {
	url, _ := actor(t)
	times := []time.Duration{0, 0, 1e6, 30e6, 31e6, 90e6}
	for length, n := range map[time.Duration]int{0: 6, 31 * time.Millisecond: 4, time.Second: 6} {
		tr, rows := trial(t, url, trace{script{kinds: []string{"ok"}, times: times}}, nil)
		tr.Run.Length = length
		run, err := tr.Measure(t.Context())
		if err != nil || len(*rows) != n || run.Arrivals != "trace" {
			t.Fatalf("%d rows, %+v, %v", len(*rows), run, err)
		}
		want := min(cmp.Or(length, time.Hour), 90e6+1)
		if cut := strings.Join(run.Notes, "; "); strings.Contains(cut, "4 of its 6 requests") != (n == 4) || n == 6 && cut != "" {
			t.Errorf("%q", cut)
		}
		if run.Length != want || run.Rate != float64(n)/want.Seconds() {
			t.Errorf("%+v", run)
		}
		for _, r := range *rows {
			if r.Intended != times[r.Index] {
				t.Errorf("request %d at %v, want %v", r.Index, r.Intended, times[r.Index])
			}
		}
	}
}

func TestInvalidRuns(t *testing.T) {
	url, _ := actor(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	measure := func(url string, change func(*Trial)) *record.Run {
		tr, _ := trial(t, url, script{kinds: []string{"ok"}}, nil)
		tr.Arrivals, tr.Run.Length = arrival.Constant{}.Times(0, 1000, 20*time.Millisecond), 20*time.Millisecond
		change(tr)
		run, err := tr.Measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	for want, run := range map[string]*record.Run{
		"behind its schedule":           measure(url, func(tr *Trial) { tr.Run.LagBudget = 1 }),
		"every request failed":          measure(gone.URL, func(*Trial) {}),
		"arrived in the measured phase": measure(url, func(tr *Trial) { tr.Run.Warmup, tr.Run.Length = 20*time.Millisecond, 21*time.Millisecond }),
	} {
		if run.Valid() || !strings.Contains(strings.Join(run.Invalid, "; "), want) {
			t.Errorf("%q: %q", want, run.Invalid)
		}
	}
	if run := measure(url, func(*Trial) {}); !run.Valid() {
		t.Errorf("%q", run.Invalid)
	}
}

// A lag within the budget still counts if it is much of what is measured.
func TestLagIsHeldAgainstWhatIsMeasured(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		p50, p99, ttft, slo time.Duration
		want                string
	}{
		{1 * ms, 1 * ms, 2 * ms, 5 * ms, ""}, // as near as a machine can be told to be
		{24 * ms, 24 * ms, 34 * ms, 0, "in the median"},
		{24 * ms, 24 * ms, 300 * ms, 0, ""},
		{0, 11 * ms, 300 * ms, 100 * ms, "in the 99th percentile"},
		{0, 10 * ms, 300 * ms, 100 * ms, ""},
	} {
		run := &record.Run{LagBudget: DefaultLagBudget, SLOs: map[string]record.SLO{"": {E2E: time.Hour, TTFT: c.slo}, "batch": {}}}
		b := books{trial: &Trial{Form: &Form{}}, run: run, all: 100, measured: 100}
		b.close(&Summary{Lag: Durations{P50: c.p50, P99: c.p99, Max: c.p99}, TTFT: Durations{Count: 100, P50: c.ttft}})
		if got := strings.Join(run.Invalid, "; "); got == "" != (c.want == "") || !strings.Contains(got, c.want) || run.LagP99 != c.p99 || run.LagMax != c.p99 {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// Answers of another length than was asked for are another workload's; a length that nobody tells is noted.
func TestLengthsOfAnswers(t *testing.T) {
	url, _ := actor(t)
	for _, c := range []struct {
		kinds          []string
		capped         bool
		invalid, noted string
	}{
		{[]string{"ok"}, false, "", ""},
		{[]string{"short", "ok"}, false, "3 of 6 answers were not as long", ""},
		{[]string{"short", "ok"}, true, "", ""},
		{[]string{"silent", "ok", "ok"}, false, "", "2 of 6 answers came without usage"},
	} {
		tr, _ := trial(t, url, script{kinds: c.kinds}, nil)
		tr.Form.Capped = c.capped
		tr.Arrivals, tr.Run.Length = arrival.Constant{}.Times(0, 100, 60*time.Millisecond), 60*time.Millisecond
		run, err := tr.Measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, texts := range []struct {
			got  []string
			want string
		}{{run.Invalid, c.invalid}, {run.Notes, c.noted}} {
			if got := strings.Join(texts.got, "; "); got == "" != (texts.want == "") || !strings.Contains(got, texts.want) {
				t.Errorf("%v, capped %v: %q, want %q", c.kinds, c.capped, got, texts.want)
			}
		}
	}
}

func TestTrialsThatCannotBe(t *testing.T) {
	for want, change := range map[string]func(*Trial){
		"no arrival times": func(tr *Trial) { tr.Arrivals = nil },
		"length":           func(tr *Trial) { tr.Run.Length = 0 },
		"warmup":           func(tr *Trial) { tr.Run.Warmup, tr.Run.Tail = time.Second, time.Second },
		"drain":            func(tr *Trial) { tr.Drain = -1 },
		"every":            func(tr *Trial) { tr.Progress = func(Progress) {} },
		"endpoint":         func(tr *Trial) { tr.Form = &Form{Endpoint: "responses"} },
	} {
		tr, _ := trial(t, "http://127.0.0.1:1", script{kinds: []string{"ok"}}, nil)
		tr.Arrivals, tr.Run.Length = arrival.Poisson{}.Times(1, 1, time.Second), time.Second
		change(tr)
		if _, err := tr.Measure(t.Context()); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Books that cannot be kept end the run.
func TestSinkThatFails(t *testing.T) {
	url, _ := actor(t)
	tr, _ := trial(t, url, script{kinds: []string{"ok"}}, nil)
	full := errors.New("disk full")
	tr.Arrivals, tr.Run.Length, tr.Sink = arrival.Constant{}.Times(0, 100, time.Hour), time.Hour, func(*record.Request) error { return full }
	if _, err := tr.Measure(t.Context()); !errors.Is(err, full) {
		t.Error(err)
	}
}

// Books that are slow hold no arrival up: here they wait for the last of them.
func TestSinkThatStalls(t *testing.T) {
	const n = 20
	url, stalled := actor(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	kinds := append([]string{"ok"}, slices.Repeat([]string{"stall"}, n-1)...)
	tr, rows := trial(t, url, script{kinds: kinds}, nil)
	tr.Arrivals, tr.Run.Length = arrival.Constant{}.Times(0, 50, n*20*time.Millisecond), n*20*time.Millisecond
	add, gaveUp := tr.Sink, time.After(time.Minute)
	tr.Sink = func(r *record.Request) error {
		for r.Outcome == record.OK && stalled.Load() < n-1 {
			select {
			case <-gaveUp:
				return errors.New("the schedule waits for the books")
			default:
				runtime.Gosched()
			}
		}
		cancel()
		return add(r)
	}
	if run, err := tr.Measure(ctx); err != nil || len(*rows) != n || !run.Partial {
		t.Fatalf("%d rows, %+v, %v", len(*rows), run, err)
	}
}

func TestHTTPS(t *testing.T) {
	var addresses sync.Map
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		addresses.Store(r.RemoteAddr, true)
		w.Header().Set("Content-Type", "text/event-stream")
		if _, err := io.WriteString(w, textA+done); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	c := newClient(t, srv.URL, func(c *ClientConfig) { c.TLS = srv.Client().Transport.(*http.Transport).TLSClientConfig })
	for range 3 {
		if r := c.Do(t.Context(), &Request{Path: "/", Body: []byte("{}")}); r.Outcome != OK || r.TextEvents != 1 {
			t.Fatalf("%+v", r)
		}
	}
	n := 0
	addresses.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d connections for three requests", n)
	}
	strict := newClient(t, srv.URL, nil)
	if r := strict.Do(t.Context(), &Request{Path: "/"}); r.Outcome != ConnectError || !strings.Contains(r.Err, "certificate") {
		t.Errorf("%+v", r)
	}
}
