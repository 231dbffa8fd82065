package soak

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamstest.IgnoreAckWatcher()) }

// Twenty seconds of everything at once on the mock, every token checked.
func TestSoak(t *testing.T) {
	o := DefaultOptions()
	o.Duration, o.Every, o.Warmup, o.Progress = 20*time.Second, 4*time.Second, 6*time.Second, os.Stderr
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(t.Output()); err != nil {
		t.Fatal(err)
	}
	if !r.Passed || !r.Vacant {
		t.Fatal("something is lost or wrong")
	}
	if r.Memory != "not judged, warm-up below 3m" || r.Heap.Bound == 0 {
		t.Errorf("memory: %s, %+v", r.Memory, r.Heap)
	}
	e := &r.Engine
	for what, n := range map[string]int64{
		"preemptions": int64(e.Preemptions), "evictions": int64(e.Evictions), "page copies": int64(e.PageCopies), "rebases": e.Rebases,
		"cancels": r.Requests.Cancelled, "replacements": r.Requests.Replaced, "ends": r.Requests.Finished,
	} {
		if n == 0 {
			t.Errorf("there were no %s: the load is too light", what)
		}
	}
}

func TestOptions(t *testing.T) {
	o := DefaultOptions()
	o.KVTokens = 100
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrConfig) {
		t.Errorf("%v", err)
	}
}

func TestWarmup(t *testing.T) {
	for _, c := range []struct{ duration, given, want time.Duration }{
		{20 * time.Minute, 0, 3 * time.Minute}, {time.Minute, 0, 20 * time.Second}, {time.Minute, 5 * time.Second, 5 * time.Second},
	} {
		o := DefaultOptions()
		o.Duration, o.Warmup = c.duration, c.given
		if o.warmup(); o.Warmup != c.want || o.Validate() != nil {
			t.Errorf("%v: %v, %v", c, o.Warmup, o.Validate())
		}
	}
}

func TestTrend(t *testing.T) {
	var samples []Sample
	for i := range 11 {
		samples = append(samples, Sample{At: time.Duration(i) * 6 * time.Second, Heap: 1000 + int64(i)*60 + int64(i%2)*10})
	}
	tr := trend(samples, func(s *Sample) int64 { return s.Heap }, 100, 5)
	if math.Abs(tr.PerMinute-600) > 5 || tr.Bound != 105 || tr.First != 1000 || tr.Last != 1600 {
		t.Errorf("%+v", tr)
	}
	if s := slope([]time.Duration{time.Second}, []int64{5}); s != 0 {
		t.Errorf("one point has the slope %g", s)
	}
}

// Memory is judged only after the stream server has forgotten as much as it learns.
func TestMemoryIsJudged(t *testing.T) {
	grown := []Sample{{At: 4 * time.Minute, Heap: 1 << 20}, {At: 5 * time.Minute, Heap: 9 << 20}}
	for memory, want := range map[string]int{Judged: 1, "not judged, warm-up below 3m": 0} {
		o := DefaultOptions()
		o.warmup()
		s := &soak{o: &o, rep: &Report{Samples: grown, Memory: memory}, load: &load{}}
		s.judge()
		if len(s.rep.Problems) != want || s.rep.Passed != (want == 0) {
			t.Errorf("memory %s: %q", memory, s.rep.Problems)
		}
	}
}

// What is left in the engine is found, also where the engine itself does not tell.
func TestVacant(t *testing.T) {
	o := DefaultOptions()
	e, err := open(t.Context(), &o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := e.vacant(); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(3, &worker.Start{Attempt: 1, Prompt: []int32{1}, MaxNew: 1}); err != nil {
		t.Fatal(err)
	}
	one := batch.Batch{PrefillTokens: 1, Entries: []batch.Entry{{Seq: 3, Tokens: []int32{1}, Start: true, Prefill: true}}}
	if err := e.Step(&one, make([]batch.Row, 1)); err != nil {
		t.Fatal(err)
	}
	if err := e.vacant(); !errors.Is(err, errOccupied) {
		t.Errorf("%v", err)
	}
	e.cells = nil
	if err := e.vacant(); !errors.Is(err, errOccupied) {
		t.Errorf("%v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// The mock's answers are known word for word.
func TestWrongAnswers(t *testing.T) {
	o := DefaultOptions()
	e, err := open(t.Context(), &o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &load{engine: e, ended: make(chan struct{}, 1), live: map[schema.RequestID]*request{}, gone: map[schema.RequestID]uint32{}}
	add := func() *request {
		r := &request{attempt: 1, cancelAt: -1, replaceAt: -1}
		r.req = schema.Request{ID: "r", Prompt: []int32{1, 2}, MaxTokens: 2, IgnoreEOS: true}
		l.live["r"] = r
		return r
	}
	say := func(got ...int32) int32 { return mock.Next(*e.mock, 0, 1, true, []int32{1, 2}, got) }
	first := say()
	second := say(first)
	for name, chunks := range map[string][]schema.Chunk{
		"another token": {{IDs: []int32{first + 1}}},
		"a gap":         {{IDs: []int32{first}}, {Index: 2, IDs: []int32{second}}},
		"too much":      {{IDs: []int32{first, second, say(first, second)}}},
		"too short":     {{IDs: []int32{first}, Finish: &schema.Finish{Reason: schema.FinishLength, PromptTokens: 2, OutputTokens: 1}}},
		"no text":       {{IDs: []int32{first, second}, Finish: &schema.Finish{Reason: schema.FinishLength, PromptTokens: 2, OutputTokens: 2}}},
		"a failure":     {{Error: &schema.Error{Code: schema.FailedEngine}}},
		"no cancel":     {{Error: &schema.Error{Code: schema.FailedCancelled}}},
		"an attempt":    {{Attempt: 2, IDs: []int32{first}}},
	} {
		l.wrong = 0
		add()
		for i := range chunks {
			c := chunks[i]
			c.Request, c.Attempt = "r", max(1, c.Attempt)
			l.chunk(&c)
		}
		if l.wrong == 0 {
			t.Errorf("%s is not noticed", name)
		}
	}
	l.wrong = 0
	l.end(add())
	l.chunk(&schema.Chunk{Request: "r", Attempt: 1, IDs: []int32{first}})
	if l.wrong == 0 {
		t.Error("a token after the end is not noticed")
	}
}
