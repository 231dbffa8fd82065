package ingress

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

// failer is a test or a property.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// settingsOf are the settings of an engine with an embedded profile.
func settingsOf(t failer, name string) *schema.EngineSettings {
	t.Helper()
	p, err := profile.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	plan := p.Batch()
	plan.PrefixCache = true
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return &schema.EngineSettings{Fingerprint: "f", Profile: b, Plan: text}
}

// requestID returns the n-th id.
func requestID(n int) schema.RequestID {
	return schema.RequestID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", n))
}

func stateOf(n int, prompt, prefill, output, most int32) schema.SequenceState {
	return schema.SequenceState{Request: requestID(n), Tenant: "t", Kind: schema.KindChat, PromptTokens: prompt, PrefillTokens: prefill,
		OutputTokens: output, CapTokens: most, Age: 10 * ms}
}

// site is an engines with its helpers.
type site struct {
	*engines
	t        failer
	settings *schema.EngineSettings
}

func newSite(t failer) *site {
	return &site{engines: newEngines(nil), t: t, settings: settingsOf(t, "seed-laptop")}
}

func (s *site) runs(worker schema.WorkerID, now time.Duration, holds ...schema.SequenceState) {
	s.t.Helper()
	e := &schema.EngineState{Worker: worker, Pool: "p", Model: "m", FreePages: 1000, StepLeft: 20 * ms, Running: holds, Settings: s.settings}
	if err := s.running(e, now); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) waits(now time.Duration, seq uint64, holds ...schema.SequenceState) {
	p := &schema.PoolState{Pool: "p", Interval: 100 * ms, RequestSeq: seq, Waiting: holds, WaitingRequests: int32(len(holds))}
	for i := range holds {
		p.WaitingPromptTokens += int64(holds[i].PromptTokens)
		p.WaitingCapTokens += int64(holds[i].CapTokens)
	}
	s.waiting(p, now)
}

// lets lets the n-th request in.
func (s *site) lets(n int, now time.Duration) {
	s.admit(&admitted{id: requestID(n), at: now, s: predictor.Sequence{PromptTokens: 100, PrefillTokens: 60, CapTokens: 50, E2E: time.Second}}, "p")
}

func arrival(n int) *call {
	return &call{id: requestID(n), tenant: "t", kind: schema.KindChat, pool: "p", model: "m", output: 50}
}

func (s *site) looks(now time.Duration) sight { return s.see(arrival(0), make([]int32, 100), now) }

// counts fails unless so many run at the worker that a request would come to, and so many wait.
func (s *site) counts(now time.Duration, running, waiting int) {
	s.t.Helper()
	v := s.looks(now)
	if v.engine == nil {
		s.t.Fatalf("nothing is seen: %s", v.note)
	}
	if len(v.engine.Running) != running || len(v.engine.Waiting) != waiting || v.load.Waiting != waiting {
		s.t.Fatalf("%d run, %d wait, %d by count, want %d and %d", len(v.engine.Running), len(v.engine.Waiting), v.load.Waiting, running, waiting)
	}
}

// A request is counted once from its admission to its end, whatever the order in which states come.
func TestOwnRequestIsCountedOnce(t *testing.T) {
	s := newSite(t)
	s.runs("w", 0)
	s.waits(0, 4)
	s.counts(1*ms, 0, 0)
	s.lets(1, 2*ms)
	s.counts(3*ms, 0, 1) // in no state
	s.stored(requestID(1), 5, 4*ms)
	s.waits(5*ms, 4)
	s.counts(5*ms, 0, 1) // in no state yet
	s.waits(6*ms, 5, stateOf(1, 100, 100, 0, 50))
	s.counts(6*ms, 0, 1)
	s.waits(7*ms, 5)
	s.counts(7*ms, 0, 1) // on its way to the engine
	s.runs("w", 8*ms, stateOf(1, 100, 40, 0, 50))
	s.counts(8*ms, 1, 0)
	s.started(requestID(1), 20*ms)
	s.runs("w", 21*ms) // ended there; the end is on its way here
	s.counts(21*ms, 0, 0)
	s.runs("w", 22*ms, stateOf(1, 100, 0, 1, 50))
	if s.end(requestID(1), 23*ms) == nil || s.end(requestID(1), 23*ms) != nil {
		t.Fatal("it does not end once")
	}
	s.counts(23*ms, 0, 0)
	s.runs("w", 24*ms, stateOf(1, 100, 0, 2, 50)) // older than the end
	s.counts(24*ms, 0, 0)
	if s.open != 0 || len(s.mine) != 1 {
		t.Errorf("%d open, %d known", s.open, len(s.mine))
	}
	s.lets(2, 4*time.Second)
	s.end(requestID(2), 4*time.Second)
	if len(s.mine) != 1 {
		t.Errorf("%d are remembered", len(s.mine))
	}
}

// A first token that is younger than the engine's state is of a request that runs.
func TestStartedRequestCountsUntilTheEngineTells(t *testing.T) {
	s := newSite(t)
	s.runs("w", 0)
	s.waits(0, 0)
	s.lets(1, 1*ms)
	s.stored(requestID(1), 1, 2*ms)
	s.waits(3*ms, 1)
	s.started(requestID(1), 4*ms)
	s.counts(5*ms, 0, 1)
	s.runs("w", 6*ms)
	s.counts(6*ms, 0, 0)
}

func TestAgesAreBroughtForward(t *testing.T) {
	s := newSite(t)
	other := stateOf(7, 64, 32, 0, 9)
	other.Budget, other.TTFTBudget, other.Class = 90*ms, -5*ms, schema.Guaranteed
	s.runs("w", 100*ms, other)
	s.lets(1, 90*ms)
	s.waits(100*ms, 1, stateOf(1, 100, 0, 0, 50), stateOf(8, 30, 0, 2, 40))
	v := s.looks(115 * ms)
	r, w := v.engine.Running[0], v.engine.Waiting
	if r.Age != 25*ms || r.E2E != 100*ms || r.TTFT != 5*ms || !r.Guaranteed || r.PrefillTokens != 32 {
		t.Errorf("running: %+v", r)
	}
	if own := w[0]; own.Age != 25*ms || own.E2E != time.Second || own.PrefillTokens != 60 {
		t.Errorf("own: %+v", own)
	}
	if w[1].Age != 25*ms || w[1].PrefillTokens != 32 || w[1].E2E != 0 {
		t.Errorf("other: %+v", w[1])
	}
	if v.engine.StepLeft != 5*ms {
		t.Errorf("step left %v", v.engine.StepLeft)
	}
	// A step of 32 tokens of prefill begins at 120 ms.
	next := v.engine.Profile.Step(32, 0, 32)
	v = s.looks(121 * ms)
	if r := v.engine.Running[0]; v.engine.StepLeft != next-ms || r.PrefillTokens != 0 || r.OutputTokens != 0 {
		t.Errorf("a step later: %v left, %+v", v.engine.StepLeft, r)
	}
	if v := s.looks(120*ms + 3*next + ms); v.engine.StepLeft != next-ms || v.engine.Running[0].PrefillTokens != 0 {
		t.Errorf("steps later: %v left, %+v", v.engine.StepLeft, v.engine.Running[0])
	}
	decoding := stateOf(7, 64, 0, 3, 9)
	s.runs("w", 250*ms, decoding)
	one := v.engine.Profile.Step(0, 1, 67)
	for steps, tokens := range map[int]int32{0: 4, 2: 6, 50: 8} {
		now := 270*ms + time.Duration(steps)*one + ms
		if r := s.looks(now).engine.Running[0]; r.OutputTokens != tokens || r.Age != now-240*ms {
			t.Errorf("%d steps later: %+v", steps, r)
		}
	}
	late := stateOf(9, 10, 0, 1, 10)
	late.Budget = -time.Second
	s.runs("w", 300*ms, late)
	s.waits(300*ms, 1)
	if r := s.looks(300 * ms).engine.Running[0]; r.E2E != 1 {
		t.Errorf("late: %+v", r)
	}
}

// A request goes to the worker with the fewest, with every n-th that waits.
func TestPlaceAndShare(t *testing.T) {
	s := newSite(t)
	s.runs("w1", 0, stateOf(1, 10, 0, 1, 10), stateOf(2, 10, 0, 1, 10))
	s.runs("w3", 0, stateOf(5, 10, 0, 1, 10))
	s.runs("w2", 0, stateOf(3, 11, 0, 1, 10))
	s.waits(0, 9, stateOf(10, 20, 0, 0, 1), stateOf(11, 21, 0, 0, 1), stateOf(12, 22, 0, 0, 1), stateOf(13, 23, 0, 0, 1), stateOf(14, 24, 0, 0, 1))
	v := s.looks(0)
	if len(v.engine.Running) != 1 || v.engine.Running[0].PromptTokens != 11 {
		t.Errorf("not at the first of those with the fewest: %+v", v.engine.Running)
	}
	if w := v.engine.Waiting; len(w) != 2 || w[0].PromptTokens != 21 || w[1].PromptTokens != 24 {
		t.Errorf("share %+v", w)
	}
	if v.load.Workers != 3 || v.load.Waiting != 5 || v.open != 9 || v.room {
		t.Errorf("%+v", v)
	}
	s.beat(&schema.WorkerState{Worker: "w2", Interval: 100 * ms, Draining: true}, 0)
	if v := s.looks(0); v.load.Workers != 2 || v.engine.Running[0].PromptTokens != 10 {
		t.Errorf("at a worker that drains: %+v", v)
	}
}

func TestNothingIsPredictedWithoutFreshState(t *testing.T) {
	s := newSite(t)
	want := func(now time.Duration, note string) {
		t.Helper()
		if v := s.looks(now); v.note != note || (v.engine == nil) != (note != "") {
			t.Errorf("at %v: %q, want %q", now, v.note, note)
		}
	}
	want(0, noteNoEngine)
	s.runs("w", 0)
	want(0, noteNoQueue)
	s.waits(0, 0)
	want(0, "")
	s.beat(&schema.WorkerState{Worker: "w", Interval: 600 * ms}, 0)
	want(1000*ms, "")
	want(1001*ms, noteNoQueue)
	s.waits(1500*ms, 0)
	want(1800*ms, "")
	want(1801*ms, noteNoEngine)
	s.settings = &schema.EngineSettings{Plan: s.settings.Plan, Profile: json.RawMessage("null")}
	s.runs("w", 1900*ms)
	want(1900*ms, noteNoProfile)
	bad := &schema.EngineState{Worker: "w", Pool: "p", Model: "m", Settings: &schema.EngineSettings{Plan: json.RawMessage(`{"KVPages":0}`)}}
	if err := s.running(bad, 2*time.Second); err == nil {
		t.Error("an engine without pages is taken")
	}
	want(2*time.Second, noteNoProfile)
	s.beat(&schema.WorkerState{Worker: "w9", Interval: 100 * ms}, time.Hour)
	if len(s.workers) != 1 || len(s.order) != 1 {
		t.Errorf("%d workers are remembered", len(s.workers))
	}
}

// What the worker's digest has of a prompt need not be computed, but for the last token, and only where the engine keeps prefixes.
func TestCachedPartIsExpected(t *testing.T) {
	s := newSite(t)
	has := 64
	s.digest = func(d *schema.PrefixDigest, tenant string, prompt []int32) int {
		if d == nil || tenant != "t" || len(prompt) != 100 {
			return 0
		}
		return has
	}
	s.runs("w", 0)
	s.waits(0, 0)
	if v := s.looks(0); v.cached != 0 {
		t.Errorf("%d without a digest", v.cached)
	}
	e := &schema.EngineState{Worker: "w", Pool: "p", Model: "m", FreePages: 9, Prefixes: &schema.PrefixDigest{}}
	if err := s.running(e, ms); err != nil {
		t.Fatal(err)
	}
	s.runs("w", 2*ms) // as before
	for n, want := range map[int]int{64: 64, 100: 99, 500: 99, -1: 0} {
		if has = n; s.looks(2*ms).cached != want {
			t.Errorf("%d of %d", s.looks(2*ms).cached, n)
		}
	}
	s.workers["w"].base.Plan.PrefixCache = false
	if v := s.looks(2 * ms); v.cached != 0 {
		t.Errorf("%d without a cache", v.cached)
	}
}

// A scheduler that was deposed is not listened to while its successor is heard.
func TestLatestEpochCounts(t *testing.T) {
	s := newSite(t)
	s.runs("w", 0)
	state := func(epoch uint64, n int32) *schema.PoolState {
		return &schema.PoolState{Pool: "p", Epoch: epoch, Interval: 100 * ms, WaitingRequests: n}
	}
	s.waiting(state(7, 1), 0)
	s.waiting(state(6, 2), 10*ms)
	if n := s.looks(10 * ms).load.Waiting; n != 1 {
		t.Errorf("%d wait", n)
	}
	s.waiting(state(6, 2), 2*time.Second)
	if n := s.looks(2 * time.Second).load.Waiting; n != 2 {
		t.Errorf("%d wait after the successor fell silent", n)
	}
}

func TestClassesAreBounded(t *testing.T) {
	e := newEngines(nil)
	first := e.class("0", schema.KindChat, 100)
	if first == e.class("0", schema.KindChat, 1000) || first == e.class("0", schema.KindCompletion, 100) || first == e.class("1", schema.KindChat, 100) {
		t.Error("different kinds of answers are alike")
	}
	for i := range 1000 {
		if n := e.class(fmt.Sprint(i), schema.KindChat, 100); n < 0 || n >= maxClasses {
			t.Fatalf("%d is in class %d", i, n)
		}
	}
	if e.class("0", schema.KindChat, 100) != first {
		t.Error("a class has changed")
	}
}

// The engines' time is shared with the other ingresses that are heard.
func TestPeersAreCounted(t *testing.T) {
	s := newSite(t)
	want := func(now time.Duration, n int) {
		t.Helper()
		if got := s.looks(now).load.Ingresses; got != n {
			t.Errorf("at %v: %d ingresses, want %d", now, got, n)
		}
	}
	beat := func(id schema.IngressID, draining bool, now time.Duration) {
		s.peer(&schema.IngressState{Ingress: id, Interval: 500 * ms, Draining: draining}, now)
	}
	want(0, 1)
	beat("me", false, 0)
	beat("a", false, 0)
	beat("b", false, 1000*ms)
	want(1000*ms, 3)
	beat("b", true, 1100*ms)
	want(1100*ms, 2)
	beat("me", false, 1600*ms) // a is silent
	want(1600*ms, 1)
}

func TestHopsFollowTheirMedian(t *testing.T) {
	h := newHops()
	if delay, enter, refill := h.delays(); delay != 4*hop || enter != 3*hop || refill != 3*hop {
		t.Errorf("at the start %v, %v, %v", delay, enter, refill)
	}
	for i := range 15 {
		h.stored.add(2 * ms)
		h.entered.add(9 * ms)
		if i == 7 {
			h.entered.add(time.Hour)
		}
	}
	if delay, enter, refill := h.delays(); delay != 9*ms+tokenHop || enter != 9*ms || refill != 7*ms+tokenHop {
		t.Errorf("%v, %v, %v", delay, enter, refill)
	}
}

// Whatever happens in whatever order, each request that has not ended is counted as a look at the latest states would have it.
func TestEnginesAgreeWithTheNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(t)
		type own struct {
			seq            uint64
			first          time.Duration
			started, ended bool
		}
		mine := map[int]*own{}
		runs := map[schema.WorkerID][]int{}
		at := map[schema.WorkerID]time.Duration{}
		var queue []int
		var read uint64
		now, next := time.Duration(0), 1
		some := func(label string) []int {
			ids := rapid.SliceOfNDistinct(rapid.IntRange(1, next+1), 0, 5, rapid.ID[int]).Draw(t, label)
			for i, n := range ids {
				if n >= next { // of another ingress: no state has what this one has not let in yet
					ids[i] = 1_000_000 + n
				}
			}
			return ids
		}
		states := func(ids []int) (list []schema.SequenceState) {
			for _, n := range ids {
				list = append(list, stateOf(n, 10, 0, 1, 10))
			}
			return list
		}
		for _, w := range []schema.WorkerID{"w1", "w2"} {
			s.runs(w, 0)
			at[w] = 0
		}
		s.waits(0, 0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 3).Draw(t, "ms")) * ms
			n := rapid.IntRange(1, next).Draw(t, "n")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				mine[next] = &own{}
				s.lets(next, now)
				next++
			case 1:
				if o := mine[n]; o != nil && o.seq == 0 && !o.ended {
					o.seq = uint64(n)
					s.stored(requestID(n), o.seq, now)
				}
			case 2:
				if o := mine[n]; o != nil && !o.started && !o.ended {
					o.started, o.first = true, max(1, now)
					s.started(requestID(n), now)
				}
			case 3:
				o := mine[n]
				if got := s.end(requestID(n), now) != nil; got != (o != nil && !o.ended) {
					t.Fatalf("end of %d: %v", n, got)
				}
				if o != nil {
					o.ended = true
				}
			case 4:
				w := rapid.SampledFrom([]schema.WorkerID{"w1", "w2"}).Draw(t, "worker")
				at[w] = now
				runs[w] = slices.DeleteFunc(some("runs"), func(n int) bool { return n%2 == 0 == (w == "w1") }) // one engine has it, never both
				s.runs(w, now, states(runs[w])...)
			case 5:
				queue, read = some("waits"), uint64(rapid.IntRange(0, next).Draw(t, "read"))
				s.waits(now, read, states(queue)...)
			}
			live := func(n int) bool { return mine[n] == nil || !mine[n].ended }
			count := func(ids []int) (c int) {
				for _, n := range ids {
					if live(n) {
						c++
					}
				}
				return c
			}
			v := s.looks(now)
			running, waiting := min(count(runs["w1"]), count(runs["w2"])), count(queue)
			open := 0
			for n, o := range mine {
				if o.ended {
					continue
				}
				open++
				if !slices.Contains(queue, n) && !slices.Contains(runs["w1"], n) && !slices.Contains(runs["w2"], n) &&
					(!o.started || o.first >= min(at["w1"], at["w2"])) {
					waiting++
				}
			}
			if len(v.engine.Running) != running || v.load.Waiting != waiting || s.open != open {
				t.Fatalf("%d run, %d wait, %d open, want %d, %d, %d", len(v.engine.Running), v.load.Waiting, s.open, running, waiting, open)
			}
			for name, q := range s.pools {
				for i, o := range q.loose {
					if o.loose != i+1 || o.ended || o.in != nil || o.queued {
						t.Fatalf("pool %s: %+v is loose at %d", name, o, i)
					}
				}
			}
		}
	})
}
