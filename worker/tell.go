package worker

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/digest"
)

const (
	// tellGap is the least time between two states. A reader knows by itself how an engine goes on, step by step; what it cannot know
	// is who came, who began and who ended, and an admission a moment later should see that. 5 ms are below the time of a step.
	tellGap = 5 * time.Millisecond
	// tellEvery is how long a state of a busy engine is good for: long enough that the errors of predicted steps do not add up. An
	// idle engine is told of with each heartbeat.
	tellEvery = 50 * time.Millisecond
	// tellSettings is how often a state comes with settings and prefixes, for who has just begun to listen.
	tellSettings = time.Second
)

// teller publishes what the engine holds. The goroutine of its heart owns it.
type teller struct {
	w     *Worker
	life  *life // that the last state was of
	state schema.EngineState
	runs  []*run

	sent, full time.Duration // when the last state was sent, and the last with settings
	step       uint64        // of the last state
	idle       bool          // the last state said so

	hashes  []uint64
	version uint64 // of the digest
	digest  *schema.PrefixDigest
	told    bool // it was sent
}

// tell sends a state if there is anything new to say; it is what a heart calls, and always goes on.
func (t *teller) tell() bool {
	l, now := t.w.up.Load(), t.w.now()
	if l == nil || l.over.Load() || t.w.pulse.silent(now) || !t.w.client.Connected() {
		return true
	}
	if l != t.life {
		t.life, t.full = l, now-tellSettings
	}
	s := t.look(now)
	full := now-t.full >= tellSettings
	idle := s.StepLeft == 0 && len(s.Running) == 0
	if !full && idle && t.idle && t.told && s.Step == t.step && now-t.sent < t.w.cfg.Heartbeat {
		return true
	}
	if full {
		s.Settings = t.w.settings
	}
	if full || !t.told {
		s.Prefixes = t.digest
	}
	if err := t.w.client.PublishEngineState(s); err != nil {
		t.w.log.Warn("engine state not sent", "error", err)
		return true
	}
	if full {
		t.full = now
	}
	t.sent, t.step, t.idle, t.told = now, s.Step, idle, true
	return true
}

// look makes the state, and brings the digest up to date.
func (t *teller) look(now time.Duration) *schema.EngineState {
	clear(t.runs)
	t.runs = t.w.book.held(t.runs[:0])
	s := &t.state
	*s = schema.EngineState{Worker: t.life.id, Pool: t.w.cfg.Pool, Model: t.w.info.Model, Running: s.Running[:0]}
	p := &t.w.engine.present
	p.mu.Lock()
	s.Step, s.Slow, s.FreePages = p.step, p.slow, int32(p.pages)
	if p.busy { // a step that takes longer than expected may end at any moment
		s.StepLeft = max(1, p.began+p.expected-now)
	}
	for _, r := range t.runs {
		s.Running = append(s.Running, r.state(now))
	}
	fresh := p.version != t.version
	if fresh {
		t.hashes, p.hashes, t.version = p.hashes, t.hashes, p.version
	}
	key := p.key
	behind := p.behind && !p.busy
	p.mu.Unlock()
	if fresh {
		t.digest, t.told = digest.Build(key, t.w.plan.PageTokens, t.w.engine.shareAll, t.hashes), false
	}
	if behind { // nobody else would make an idle loop look
		poke(t.w.book.wake)
	}
	return s
}

// state is a run as a reader of states needs it. The caller holds the mutex of the engine's present.
func (r *run) state(now time.Duration) schema.SequenceState {
	here := max(0, now-r.arrived) // it may have come since now was read
	s := schema.SequenceState{
		Request: r.req.ID, Tenant: r.req.Tenant, Kind: r.req.Kind, Class: r.req.Class, PromptTokens: int32(len(r.req.Prompt)),
		PrefillTokens: max(0, r.left), OutputTokens: r.output, CapTokens: r.req.MaxTokens, Age: r.before() + here,
	}
	if r.budget != 0 {
		s.Budget = late(r.budget - here)
	}
	if r.firstBudget != 0 && r.output == 0 {
		s.TTFTBudget = late(r.firstBudget - here)
	}
	return s
}

// before is how old the request was when it arrived here, as far as what is left of its objectives tells.
func (r *run) before() time.Duration {
	switch {
	case r.budget != 0 && r.req.Budget > 0:
		return max(0, r.req.Budget-r.budget)
	case r.firstBudget != 0 && r.req.TTFTBudget > 0:
		return max(0, r.req.TTFTBudget-r.firstBudget)
	}
	return 0
}

// late keeps what is left of an objective apart from none.
func late(left time.Duration) time.Duration {
	if left == 0 {
		return -1
	}
	return left
}

// engineSettings are what does not change in a worker's life.
func (w *Worker) engineSettings() (*schema.EngineSettings, error) {
	s := &schema.EngineSettings{Fingerprint: w.info.Fingerprint}
	var err error
	if s.Plan, err = json.Marshal(w.plan); err != nil {
		return nil, fmt.Errorf("worker: encoding how the engine is used: %w", err)
	}
	if w.engine.profile != nil {
		if s.Profile, err = json.Marshal(w.engine.profile); err != nil {
			return nil, fmt.Errorf("worker: encoding the engine's profile: %w", err)
		}
	}
	return s, nil
}
