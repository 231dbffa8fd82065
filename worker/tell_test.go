package worker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/digest"
	"github.com/cadence-slo/cadence/worker/mock"
)

// watcher keeps what an engine says it holds.
type watcher struct {
	r      *rig
	states []*schema.EngineState
}

// watched is a rig whose worker's states are kept, from the first on.
func watched(t testing.TB, set ...setting) (*rig, *watcher) {
	t.Helper()
	r := newRig(t)
	w := r.watch()
	r.run(set...)
	return r, w
}

func (r *rig) watch() *watcher {
	r.t.Helper()
	w := &watcher{r: r}
	if _, err := r.client.SubscribeEngineStates(func(s *schema.EngineState) { r.note(func() { w.states = append(w.states, s) }) }); err != nil {
		r.t.Fatal(err)
	}
	return w
}

// until waits for a state of which ok holds, the newest or a later one.
func (w *watcher) until(what string, ok func(*schema.EngineState) bool) *schema.EngineState {
	w.r.t.Helper()
	var found *schema.EngineState
	w.r.wait("a state with "+what, func() bool {
		if n := len(w.states); n > 0 && ok(w.states[n-1]) {
			found = w.states[n-1]
		}
		return found != nil
	})
	return found
}

// prefixes waits for a digest of which ok holds.
func (w *watcher) prefixes(what string, ok func(*schema.PrefixDigest) bool) *schema.PrefixDigest {
	w.r.t.Helper()
	return w.until(what, func(s *schema.EngineState) bool { return s.Prefixes != nil && ok(s.Prefixes) }).Prefixes
}

func ids(s *schema.EngineState) (all []schema.RequestID) {
	for i := range s.Running {
		all = append(all, s.Running[i].Request)
	}
	return all
}

// timed is a mock with a cost, so that it has a profile.
func timed(_ *worker.Config, m *mock.Config) {
	m.StepBase, m.StepSequence, m.PrefillRate = time.Millisecond, 10*time.Microsecond, 100_000
}

// What is told is what there is: from a request that waits to one that ended.
func TestStateFollowsTheEngine(t *testing.T) {
	g := newGate()
	r, w := watched(t, timed, func(c *worker.Config, m *mock.Config) {
		c.ChunkTokens = 32
		m.FailStep = func(*batch.Batch) error { g.pass(); return nil }
	})
	defer g.release()
	first := w.until("settings", func(s *schema.EngineState) bool { return s.Settings != nil })
	if first.Worker != r.w.ID() || first.Pool != "p" || first.Model != "mock" || first.FreePages != 128 || first.StepLeft != 0 || len(first.Running) != 0 {
		t.Errorf("idle: %+v", first)
	}
	if p, err := profile.Decode(first.Settings.Profile); err != nil || p.Step(0, 1, 1) != 1010*time.Microsecond || p.Limits.MaxBatch != 8 || p.Limits.KVTokens != 2048 {
		t.Errorf("%v, %+v", err, p)
	}
	var plan batch.Config
	if err := json.Unmarshal(first.Settings.Plan, &plan); err != nil || plan.ChunkTokens != 32 || plan.MaxBatch != 8 || plan.KVPages != 128 {
		t.Errorf("%v, %+v", err, plan)
	}
	if first.Settings.Fingerprint != r.backend.Info().Fingerprint {
		t.Errorf("fingerprint %q", first.Settings.Fingerprint)
	}

	a := newRequest(t, make([]int32, 40), 400)
	a.Class, a.Budget, a.TTFTBudget = schema.Guaranteed, 20*time.Second, 10*time.Second
	it := item(t, a, 1)
	it.Budget, it.TTFTBudget = 15*time.Second, 5*time.Second
	if v := r.dispatch(1, it); v[0] != schema.VerdictAccepted {
		t.Fatal(v)
	}
	<-g.at
	s := w.until("a first step", func(s *schema.EngineState) bool { return s.Step == 1 })
	if len(s.Running) != 1 || s.StepLeft <= 0 || s.FreePages != 128-3 {
		t.Fatalf("%+v", s)
	}
	q := s.Running[0]
	if q.Age < 5*time.Second || q.Age > 10*time.Second || q.Budget != 20*time.Second-q.Age || q.TTFTBudget != 10*time.Second-q.Age {
		t.Errorf("age %v, %v and %v left", q.Age, q.Budget, q.TTFTBudget)
	}
	q.Age, q.Budget, q.TTFTBudget = 0, 0, 0
	if q != (schema.SequenceState{Request: a.ID, Tenant: "t", Kind: schema.KindChat, Class: schema.Guaranteed, PromptTokens: 40, PrefillTokens: 8, CapTokens: 400}) {
		t.Errorf("in its first chunk: %+v", q)
	}

	b := newRequest(t, make([]int32, 20), 3)
	r.accept(b, 1, 7, 8)
	s = w.until("one that waits", func(s *schema.EngineState) bool { return len(s.Running) == 2 })
	if q := s.Running[1]; q.Request != b.ID || q.PrefillTokens != 22 || q.OutputTokens != 2 || q.Budget != 0 || q.TTFTBudget != 0 {
		t.Errorf("waiting: %+v", q)
	}
	g.release()
	s = w.until("a first token", func(s *schema.EngineState) bool { return len(s.Running) > 0 && s.Running[0].OutputTokens > 0 })
	if q := s.Running[0]; q.Request != a.ID || q.PrefillTokens != 0 || q.TTFTBudget != 0 || q.Budget <= 0 {
		t.Errorf("decoding: %+v", q)
	}
	r.settled(b.ID, 1)
	w.until("the end of the short one", func(s *schema.EngineState) bool { return slices.Equal(ids(s), []schema.RequestID{a.ID}) })
	if err := r.client.PublishCancel(&schema.Cancel{Request: a.ID, Reason: schema.CancelDisconnect}); err != nil {
		t.Fatal(err)
	}
	s = w.until("nothing", func(s *schema.EngineState) bool { return len(s.Running) == 0 && s.StepLeft == 0 })
	if s.FreePages != 128 {
		t.Errorf("%d pages are free in the end", s.FreePages)
	}
	r.settled(a.ID, 1)
}

// A cached prompt is found by whoever may use it, and by nobody else.
func TestStateTellsPrefixes(t *testing.T) {
	for sharing, others := range map[string]int{"tenant": 0, "global": 96} {
		t.Run(sharing, func(t *testing.T) {
			r, w := watched(t, func(c *worker.Config, _ *mock.Config) { c.PrefixSharing = sharing })
			w.prefixes("an empty digest", func(d *schema.PrefixDigest) bool { return len(d.Bits) == 0 })
			prompt := make([]int32, 100)
			for i := range prompt {
				prompt[i] = int32(i * 7)
			}
			req := newRequest(t, prompt, 2)
			r.accept(req, 1)
			d := w.prefixes("the prompt", func(d *schema.PrefixDigest) bool { return digest.Cached(d, "t", prompt) >= 96 })
			if n := digest.Cached(d, "t", prompt); n != 96 || d.PageTokens != 16 || d.Shared != (sharing == "global") {
				t.Errorf("%d tokens cached, %+v", n, d)
			}
			if n := digest.Cached(d, "other", prompt); n != others {
				t.Errorf("another tenant finds %d tokens, want %d", n, others)
			}
			if n := digest.Cached(d, "t", append([]int32{1}, prompt...)); n != 0 {
				t.Errorf("another prompt has %d tokens", n)
			}
			// Right after it, while the tree is not looked at again: nothing is forgotten.
			next := newRequest(t, append(slices.Clone(prompt), prompt[:60]...), 2)
			r.accept(next, 1)
			w.prefixes("the longer prompt", func(d *schema.PrefixDigest) bool {
				return digest.Cached(d, "t", next.Prompt) == 159 || digest.Cached(d, "t", next.Prompt) == 144
			})
			r.settled(req.ID, 1)
			r.settled(next.ID, 1)
			// Who comes later hears of it, too.
			late := r.watch()
			s := late.until("settings and prefixes", func(s *schema.EngineState) bool { return s.Settings != nil })
			if n := digest.Cached(s.Prefixes, "t", prompt); n != 96 {
				t.Errorf("who comes late finds %d tokens", n)
			}
		})
	}
}

// The next life has another key, and knows the same prefixes.
func TestPrefixesHaveAKeyOfTheirLife(t *testing.T) {
	r := newRig(t)
	w := r.watch()
	e := &elsewhere{}
	r.runElsewhere(e, nil)
	old := r.w.ID()
	prompt := make([]int32, 64)
	req := newRequest(t, prompt, 2)
	r.accept(req, 1)
	before := w.prefixes("the prompt", func(d *schema.PrefixDigest) bool { return digest.Cached(d, "t", prompt) > 0 })
	r.settled(req.ID, 1)
	gone := errors.New("the upstream is gone")
	e.lost.Store(&gone)
	r.wait("the end of the life", func() bool { return r.count(schema.WorkerDown) > 0 })
	e.lost.Store(nil)
	s := w.until("another life", func(s *schema.EngineState) bool { return s.Worker != old && s.Prefixes != nil })
	if s.Settings == nil || s.Prefixes.Key == before.Key || bytes.Equal(s.Prefixes.Bits, before.Bits) || digest.Cached(s.Prefixes, "t", prompt) != 63 {
		t.Errorf("%+v after %+v", s.Prefixes, before)
	}
}

// No profile, no prefix cache: the rest is told all the same.
func TestStateOfAnUnknownEngine(t *testing.T) {
	for name, set := range map[string]setting{
		"none":  func(c *worker.Config, _ *mock.Config) { c.Profile = worker.ProfileNone },
		"free":  func(*worker.Config, *mock.Config) {},
		"named": func(c *worker.Config, _ *mock.Config) { c.Profile = "seed-laptop" },
	} {
		t.Run(name, func(t *testing.T) {
			r, w := watched(t, set, func(c *worker.Config, _ *mock.Config) { c.PrefixCache, c.CacheOutput = false, false })
			s := w.until("settings", func(s *schema.EngineState) bool { return s.Settings != nil })
			if s.Prefixes != nil || (len(s.Settings.Profile) > 0) != (name == "named") {
				t.Errorf("%+v, profile %s", s.Prefixes, s.Settings.Profile)
			}
			req := newRequest(t, []int32{1, 2, 3}, 2)
			r.accept(req, 1)
			r.settled(req.ID, 1)
			w.until("steps", func(s *schema.EngineState) bool { return s.Step >= 2 && len(s.Running) == 0 && s.StepLeft == 0 })
		})
	}
}

func TestProfileThatIsNotThere(t *testing.T) {
	b, err := mock.New(mock.FreeConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := worker.DefaultConfig()
	c.Profile = "nobody"
	if _, err := worker.New(c, nil, b, discard, registry()); !errors.Is(err, worker.ErrConfig) {
		t.Error(err)
	}
	c.Profile = ""
	if err := c.Validate(); !errors.Is(err, worker.ErrConfig) {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
