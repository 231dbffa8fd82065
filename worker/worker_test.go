package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

func TestAnswersWithTokensAndEvents(t *testing.T) {
	r := start(t)
	req := newRequest(t, []int32{1, 2, 3, 4, 5}, 12)
	r.accept(req, 1)
	want := say(req, 1, 12)
	a := r.answer(req.ID, 1, 0)
	a.check(t, want, textOf(t, want...), schema.FinishLength)
	if *a.finish != (schema.Finish{Reason: schema.FinishLength, PromptTokens: 5, OutputTokens: 12}) {
		t.Errorf("finish %+v", a.finish)
	}
	events := r.settled(req.ID, 1)
	if got, want := types(events), []schema.Type{schema.PrefillStarted, schema.FirstToken, schema.Finished}; !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
	for i := range events {
		e := &events[i]
		if e.Worker != r.w.ID() || e.Source != string(r.w.ID()) || e.Tenant != "t" || e.Ingress != "i1" || e.Pool != "p" || e.Model != "mock" || e.PromptTokens != 5 || e.QueueTime <= 0 {
			t.Errorf("%s: %+v", e.Type, e)
		}
	}
	if e := events[1]; e.PrefillTime <= 0 || e.OutputTokens != 1 {
		t.Errorf("first_token: %+v", e)
	}
	if e := events[2]; e.PrefillTime != events[1].PrefillTime || e.DecodeTime <= 0 || e.OutputTokens != 12 || e.Reason != "length" {
		t.Errorf("finished: %+v", e)
	}
	s := r.lastState("an idle heartbeat", func(s *schema.WorkerState) bool { return s.Running+s.Waiting == 0 })
	if s.Slots != 8 || s.KVPages != 128 || s.KVFreePages != 128 || s.ContextTokens != 512 || s.PageTokens != 16 {
		t.Errorf("heartbeat %+v", s)
	}
}

func TestMetricsTellWhatHappened(t *testing.T) {
	r := start(t)
	for range 3 {
		req := newRequest(t, make([]int32, 10), 7)
		r.accept(req, 1)
		r.answer(req.ID, 1, 0)
	}
	r.dispatch(1, schema.DispatchItem{Attempt: 1, Request: []byte(`{}`)})
	r.lastState("an idle heartbeat", func(s *schema.WorkerState) bool { return s.Running+s.Waiting == 0 })
	got := r.metrics()
	for name, want := range map[string]float64{
		"cadence_worker_ended_total/length": 3, "cadence_worker_ended_total/stop": 0, "cadence_worker_verdicts_total/accepted": 3,
		"cadence_worker_verdicts_total/invalid": 1, "cadence_worker_prefill_tokens_total": 30, "cadence_worker_output_tokens_total": 21,
		"cadence_worker_step_seconds": 21, "cadence_worker_running": 0, "cadence_worker_waiting": 0, "cadence_worker_slots": 8,
		"cadence_worker_kv_pages": 128, "cadence_worker_kv_reserved_pages": 0, "cadence_worker_fenced_total": 0,
		// What is left is the first page of the answers, which are alike, in the prefix cache.
		"cadence_worker_kv_used_pages": 1, "cadence_worker_kv_cached_pages": 1, "cadence_worker_prompt_tokens_total": 30,
		"cadence_worker_cached_tokens_total": 0, "cadence_worker_preemptions_total": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// The last token is on the wire before the event that says so.
func TestTokensComeBeforeTheTerminalEvent(t *testing.T) {
	r := newRig(t)
	order := make(chan string, 1<<16)
	spy(t, r.srv.URL, func(subject string) {
		if strings.HasPrefix(subject, "tok.") || strings.HasPrefix(subject, "evt.finished.") {
			order <- subject
		}
	})
	r.run()
	for range 50 {
		req := newRequest(t, []int32{1}, 20)
		r.accept(req, 1)
		r.answer(req.ID, 1, 0)
		r.settled(req.ID, 1)
	}
	for tokens := 0; len(order) > 0; {
		if s := <-order; strings.HasPrefix(s, "tok.") {
			tokens++
		} else if tokens == 0 {
			t.Fatal("finished before its tokens")
		} else {
			tokens = 0
		}
	}
}

func TestVerdicts(t *testing.T) {
	g := newGate()
	defer g.release()
	r := start(t, func(_ *worker.Config, m *mock.Config) {
		m.FailStep = func(*batch.Batch) error { g.pass(); return nil }
	})
	one := newRequest(t, []int32{1, 2}, 4)
	if v := r.dispatch(7, item(t, one, 1), item(t, one, 1)); !slices.Equal(v, []schema.Verdict{schema.VerdictAccepted, schema.VerdictDuplicate}) {
		t.Fatalf("twice in one dispatch: %v", v)
	}
	// The engine is in a step from here on: verdicts do not wait for it.
	<-g.at
	if v := r.dispatch(6, item(t, newRequest(t, []int32{1}, 1), 1)); v[0] != schema.VerdictStaleEpoch {
		t.Errorf("older epoch: %s", v[0])
	}
	if v := r.dispatch(8, item(t, one, 1)); v[0] != schema.VerdictDuplicate {
		t.Errorf("same attempt: %s", v[0])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	reply, err := r.client.Dispatch(ctx, r.w.ID(), &schema.Dispatch{Pool: "q", Epoch: 1 << 40, Items: []schema.DispatchItem{item(t, newRequest(t, []int32{1}, 1), 1)}})
	if err != nil || reply.Verdicts[0] != schema.VerdictInvalid || reply.Epoch != 8 { // and its epoch fences nobody here
		t.Errorf("a scheduler of another pool: %+v, %v", reply, err)
	}
	foreign := newRequest(t, []int32{1}, 1)
	foreign.Pool = "q"
	for name, it := range map[string]schema.DispatchItem{
		"not a request":          {Attempt: 1, Request: []byte(`"text"`)},
		"a rule broken":          {Attempt: 1, Request: []byte(`{"v":1,"request_id":"x"}`)},
		"newer version":          {Attempt: 1, Request: []byte(`{"v":99}`)},
		"another pool":           item(t, foreign, 1),
		"outside the vocabulary": item(t, newRequest(t, []int32{int32(mock.Vocab)}, 1), 1),
		"resume outside":         item(t, newRequest(t, []int32{1}, 9), 2, int32(mock.Vocab)),
		"longer than the cache":  item(t, newRequest(t, make([]int32, 512), 1), 1),
	} {
		if v := r.dispatch(8, it, item(t, one, 1)); v[0] != schema.VerdictInvalid || v[1] != schema.VerdictDuplicate {
			t.Errorf("%s: %v", name, v)
		}
	}
	// 8 slots, one is taken; 128 pages, of which the long ones need 32 each.
	var items []schema.DispatchItem
	for range 4 {
		items = append(items, item(t, newRequest(t, []int32{1}, 511), 1))
	}
	if v := r.dispatch(8, items...); !slices.Equal(v, []schema.Verdict{"accepted", "accepted", "accepted", "full"}) {
		t.Errorf("pages: %v", v)
	}
	items = items[:0]
	for range 5 {
		items = append(items, item(t, newRequest(t, []int32{1}, 2), 1))
	}
	if v := r.dispatch(8, items...); !slices.Equal(v, []schema.Verdict{"accepted", "accepted", "accepted", "accepted", "full"}) {
		t.Errorf("slots: %v", v)
	}
	s := r.lastState("a full heartbeat", func(s *schema.WorkerState) bool { return s.Running+s.Waiting == 8 })
	if s.KVFreePages != 128-3*32-5 {
		t.Errorf("heartbeat %+v", s)
	}
	g.release()
	r.answer(one.ID, 1, 0)
	r.settled(one.ID, 1)
	r.lastState("an idle heartbeat", func(s *schema.WorkerState) bool { return s.Running+s.Waiting == 0 })
	if v := r.dispatch(8, item(t, one, 1)); v[0] != schema.VerdictDuplicate {
		t.Errorf("an attempt that has ended: %s", v[0])
	}
	if v := r.dispatch(8, item(t, one, 2)); v[0] != schema.VerdictAccepted {
		t.Errorf("the next attempt of one that has ended: %s", v[0])
	}
	r.answer(one.ID, 2, 0)
}

func TestNewerAttemptReplacesTheOldOne(t *testing.T) {
	g := newGate()
	r := start(t, func(_ *worker.Config, m *mock.Config) {
		m.FailStep = func(*batch.Batch) error { g.pass(); return nil }
	})
	defer g.release()
	req := newRequest(t, []int32{1, 2}, 500) // all of its pages fit only four times
	others := []*schema.Request{newRequest(t, []int32{1}, 500), newRequest(t, []int32{1}, 500), newRequest(t, []int32{1}, 500)}
	r.accept(req, 1)
	for _, o := range others {
		r.accept(o, 1)
	}
	<-g.at
	sealed := say(req, 1, 3)
	r.accept(req, 2, sealed...) // takes the place of the first
	if v := r.dispatch(1, item(t, req, 1)); v[0] != schema.VerdictDuplicate {
		t.Errorf("the replaced attempt: %s", v[0])
	}
	g.release()
	a := r.answer(req.ID, 2, 3)
	want := say(req, 2, 497, sealed...)
	a.check(t, want, textOf(t, want...), schema.FinishLength)
	for _, o := range others {
		r.answer(o.ID, 1, 0)
	}
	if got := types(r.settled(req.ID, 2)); !slices.Equal(got, []schema.Type{schema.PrefillStarted, schema.FirstToken, schema.Finished}) {
		t.Errorf("events of the second %v", got)
	}
	for _, e := range r.of(req.ID, 1) {
		if e.Type.Terminal() {
			t.Errorf("the replaced attempt said %s", e.Type)
		}
	}
}

func TestStopStringsAndEnds(t *testing.T) {
	r := start(t, func(_ *worker.Config, m *mock.Config) { m.EndHazard = 0 })
	req := newRequest(t, []int32{9, 9}, 20)
	ids := say(req, 1, 20)
	text := textOf(t, ids...)
	cut := len(textOf(t, ids[:6]...)) + 3                 // inside the seventh token
	req.Stop = []string{"never", text[cut : cut+8], "no"} // over three tokens
	r.accept(req, 1)
	a := r.answer(req.ID, 1, 0)
	a.check(t, ids[:9], text[:cut], schema.FinishStop)
	if a.finish.OutputTokens != 9 {
		t.Errorf("%+v", a.finish)
	}
	// A prefix of a stop string at the end of an answer comes out with the end.
	req = newRequest(t, []int32{9, 9, 9}, 5)
	ids = say(req, 1, 5)
	text = textOf(t, ids...)
	req.Stop = []string{text[len(text)-4:] + "!"}
	r.accept(req, 1)
	r.answer(req.ID, 1, 0).check(t, ids, text, schema.FinishLength)
}

func TestEndOfText(t *testing.T) {
	r := start(t, func(_ *worker.Config, m *mock.Config) { m.EndHazard = 0.2 })
	for seed := range uint64(8) {
		req := newRequest(t, []int32{1}, 100)
		req.Sampling.Seed = seed
		var ids []int32
		for len(ids) < 100 && !slices.Contains(ids, mock.TurnEnd) {
			ids = append(ids, mock.Next(mock.Config{EndHazard: 0.2}, seed, 1, false, req.Prompt, ids))
		}
		r.accept(req, 1)
		r.answer(req.ID, 1, 0).check(t, ids, textOf(t, ids...), schema.FinishStop)
		req.ID, req.IgnoreEOS = newID(t), true
		r.accept(req, 1)
		if a := r.answer(req.ID, 1, 0); len(a.ids) != 100 || a.finish.Reason != schema.FinishLength {
			t.Errorf("an answer that ignores its end: %d tokens, %+v", len(a.ids), a.finish)
		}
	}
}

func TestContextBoundsTheOutput(t *testing.T) {
	r := start(t)
	req := newRequest(t, make([]int32, 508), 2_000_000_000)
	r.accept(req, 1)
	r.answer(req.ID, 1, 0).check(t, say(req, 1, 4), textOf(t, say(req, 1, 4)...), schema.FinishLength)
}

// Wherever an answer was sealed, what comes after continues it: text, stop strings, characters, end and count.
func TestResume(t *testing.T) {
	r := start(t)
	req := newRequest(t, []int32{3, 4}, 12)
	first := say(req, 1, 12)
	for sealed := range 13 {
		req.ID = newID(t)
		rest := say(req, 2, 12-sealed, first[:sealed]...)
		r.accept(req, 2, first[:sealed]...)
		a := r.answer(req.ID, 2, sealed)
		a.check(t, rest, textOf(t, rest...), schema.FinishLength)
		if a.finish.OutputTokens != 12 || a.finish.PromptTokens != 2 {
			t.Errorf("sealed at %d: %+v", sealed, a.finish)
		}
		events := r.settled(req.ID, 2)
		if e := events[len(events)-1]; e.ResumeTokens != int32(sealed) || e.OutputTokens != 12 {
			t.Errorf("sealed at %d: %+v", sealed, e)
		}
	}
	t.Run("a stop string over the seal", func(t *testing.T) {
		req := newRequest(t, []int32{3, 4}, 12)
		sealed := first[:3]
		rest := say(req, 2, 9, sealed...)
		before, after := textOf(t, sealed...), textOf(t, rest...)
		req.Stop = []string{before[len(before)-4:] + after[:7]}
		r.accept(req, 2, sealed...)
		r.answer(req.ID, 2, 3).check(t, rest[:2], "", schema.FinishStop) // the held-back prefix was not sent before either
	})
	t.Run("a held-back prefix is released after the seal", func(t *testing.T) {
		req := newRequest(t, []int32{3, 4}, 5)
		sealed := first[:3]
		rest := say(req, 2, 2, sealed...)
		before := textOf(t, sealed...)
		req.Stop = []string{before[len(before)-4:] + "!"}
		r.accept(req, 2, sealed...)
		r.answer(req.ID, 2, 3).check(t, rest, before[len(before)-4:]+textOf(t, rest...), schema.FinishLength)
	})
	t.Run("half a character over the seal", func(t *testing.T) {
		req := newRequest(t, []int32{3, 4}, 3)
		r.accept(req, 2, 0xf0, 0x9f) // what follows is a word: the half becomes U+FFFD once
		rest := say(req, 2, 1, 0xf0, 0x9f)
		r.answer(req.ID, 2, 2).check(t, rest, "\uFFFD"+textOf(t, rest...), schema.FinishLength)
	})
	t.Run("nothing left: length", func(t *testing.T) {
		req := newRequest(t, []int32{3, 4}, 3)
		req.Stop = []string{textOf(t, first[2])[1:] + "?"} // its prefix is held back to the end
		r.accept(req, 2, first[:3]...)
		a := r.answer(req.ID, 2, 3)
		a.check(t, nil, textOf(t, first[2])[1:], schema.FinishLength)
		if a.finish.OutputTokens != 3 {
			t.Errorf("%+v", a.finish)
		}
	})
	t.Run("nothing left: stop string", func(t *testing.T) {
		req := newRequest(t, []int32{3, 4}, 30)
		req.Stop = []string{textOf(t, first[1:3]...)}
		r.accept(req, 2, first[:3]...)
		r.answer(req.ID, 2, 3).check(t, nil, "", schema.FinishStop)
	})
	t.Run("nothing left: end of text", func(t *testing.T) {
		req := newRequest(t, []int32{3, 4}, 30)
		r.accept(req, 2, first[0], mock.TurnEnd)
		r.answer(req.ID, 2, 2).check(t, nil, "", schema.FinishStop)
		if got := types(r.settled(req.ID, 2)); !slices.Equal(got, []schema.Type{schema.Finished}) {
			t.Errorf("events %v", got)
		}
	})
	r.lastState("an idle heartbeat", func(s *schema.WorkerState) bool { return s.Running+s.Waiting == 0 && s.KVFreePages == s.KVPages })
}

func TestCancel(t *testing.T) {
	g := newGate()
	r := start(t, func(c *worker.Config, m *mock.Config) {
		c.MaxBatch = 2
		m.StepBase = time.Millisecond // the cancel arrives long before the end
		m.FailStep = func(*batch.Batch) error { g.pass(); return nil }
	})
	defer g.release()
	req, other := newRequest(t, []int32{1}, 500), newRequest(t, []int32{1}, 20)
	r.accept(req, 1)
	r.accept(other, 1)
	<-g.at
	for _, id := range []schema.RequestID{req.ID, newID(t)} { // one that runs, one that is not here
		if err := r.client.PublishCancel(&schema.Cancel{Request: id, Reason: schema.CancelDisconnect}); err != nil {
			t.Fatal(err)
		}
	}
	r.flush()
	g.release()
	a := r.answer(req.ID, 1, 0)
	if a.fault == nil || a.fault.Code != schema.FailedCancelled {
		t.Fatalf("ended with %+v, %+v", a.finish, a.fault)
	}
	events := r.settled(req.ID, 1)
	if e := events[len(events)-1]; e.Type != schema.Cancelled || e.Reason != string(schema.CancelDisconnect) || int(e.OutputTokens) != len(a.ids) || e.Worker != r.w.ID() {
		t.Errorf("terminal event %+v after %d tokens", e, len(a.ids))
	}
	if ids := say(req, 1, len(a.ids)); !slices.Equal(a.ids, ids) {
		t.Errorf("tokens %v", a.ids)
	}
	r.answer(other.ID, 1, 0).check(t, say(other, 1, 20), textOf(t, say(other, 1, 20)...), schema.FinishLength)
	r.lastState("free pages", func(s *schema.WorkerState) bool { return s.KVFreePages == s.KVPages && s.Running == 0 })
}

// A request that makes every step with it fail, and one whose row is bad, fail alone; the rest do not notice.
func TestOneBadRequestFailsAlone(t *testing.T) {
	var poison, nan schema.RequestID
	r := start(t, func(_ *worker.Config, m *mock.Config) {
		m.FailStep = func(b *batch.Batch) error {
			for i := range b.Entries {
				if b.Entries[i].Tokens[0] == 66 && b.Entries[i].Pos == 0 {
					return errBoom
				}
			}
			return nil
		}
		m.FailRow = func(id schema.RequestID, pos int32) error {
			if id == nan && pos == 5 {
				return errBoom
			}
			return nil
		}
	})
	var items []schema.DispatchItem
	var good []*schema.Request
	for i := range 8 {
		req := newRequest(t, []int32{1, 2, int32(i)}, 10)
		switch i {
		case 3:
			req.Prompt, poison = schema.Tokens{66, 1}, req.ID
		case 5:
			nan = req.ID
		default:
			good = append(good, req)
		}
		items = append(items, item(t, req, 1))
	}
	for i, v := range r.dispatch(1, items...) {
		if v != schema.VerdictAccepted {
			t.Fatalf("item %d: %s", i, v)
		}
	}
	for id, tokens := range map[schema.RequestID]int{poison: 0, nan: 2} {
		a := r.answer(id, 1, 0)
		if a.fault == nil || a.fault.Code != schema.FailedEngine || !strings.Contains(a.fault.Message, "boom") || len(a.ids) != tokens {
			t.Errorf("ended with %+v, %+v after %d tokens", a.finish, a.fault, len(a.ids))
		}
		events := r.settled(id, 1)
		if e := events[len(events)-1]; e.Type != schema.Failed || e.Reason != string(schema.FailedEngine) {
			t.Errorf("%+v", e)
		}
	}
	for _, req := range good {
		r.answer(req.ID, 1, 0).check(t, say(req, 1, 10), textOf(t, say(req, 1, 10)...), schema.FinishLength)
	}
	r.lastState("free pages", func(s *schema.WorkerState) bool { return s.KVFreePages == s.KVPages && s.Running == 0 })
}

func TestBrokenEngineEndsTheWorker(t *testing.T) {
	r := start(t, func(_ *worker.Config, m *mock.Config) { m.FailStep = func(*batch.Batch) error { return errBoom } })
	w := r.w.ID()
	var items []schema.DispatchItem
	for range 8 {
		items = append(items, item(t, newRequest(t, []int32{1}, 1), 1))
	}
	for range 2 {
		r.dispatch(1, items...)
		for i := range items {
			items[i].Attempt++
		}
		r.wait("failures", func() bool { return r.count(schema.Failed) >= int(items[0].Attempt-1)*8 })
	}
	if err := r.ended(); !errors.Is(err, worker.ErrBackend) {
		t.Fatalf("ended with %v", err)
	}
	r.wait("worker_down", func() bool { return r.count(schema.WorkerDown) == 1 })
	if e := r.events[len(r.events)-1]; e.Worker != w {
		t.Errorf("%+v", e)
	}
}

func TestDrain(t *testing.T) {
	g := newGate()
	r := start(t, func(_ *worker.Config, m *mock.Config) {
		m.FailStep = func(*batch.Batch) error { g.pass(); return nil }
	})
	defer g.release()
	w := r.w.ID()
	req := newRequest(t, []int32{1}, 30)
	r.accept(req, 1)
	<-g.at
	r.stop()
	r.lastState("a draining heartbeat", func(s *schema.WorkerState) bool { return s.Draining }) // from within a step
	if v := r.dispatch(1, item(t, newRequest(t, []int32{1}, 1), 1), item(t, req, 1)); !slices.Equal(v, []schema.Verdict{schema.VerdictDraining, schema.VerdictDuplicate}) {
		t.Errorf("verdicts %v", v)
	}
	g.release()
	r.answer(req.ID, 1, 0).check(t, say(req, 1, 30), textOf(t, say(req, 1, 30)...), schema.FinishLength)
	r.settled(req.ID, 1)
	if err := r.ended(); err != nil {
		t.Fatal(err)
	}
	r.wait("worker_down", func() bool { return r.count(schema.WorkerDown) == 1 })
	if e := r.events[len(r.events)-1]; e.Worker != w || e.Reason != string(schema.DownDrained) {
		t.Errorf("%+v", e)
	}
	if r.w.Ready() || r.w.ID() != "" {
		t.Error("still ready")
	}
}

func TestGraceEnds(t *testing.T) {
	r := start(t, func(c *worker.Config, m *mock.Config) {
		c.Grace = 20 * time.Millisecond
		m.StepBase = time.Millisecond
		m.ContextTokens, m.KVCells = 1<<20, 1<<20
	})
	req := newRequest(t, []int32{1}, 1_000_000)
	r.accept(req, 1)
	r.stop()
	if err := r.ended(); err != nil {
		t.Fatal(err)
	}
	r.wait("worker_down", func() bool { return r.count(schema.WorkerDown) == 1 })
	if e := r.events[len(r.events)-1]; e.Reason != string(schema.DownLost) || !strings.Contains(e.Message, "1 request") {
		t.Errorf("%+v", e)
	}
	for _, e := range r.of(req.ID, 1) {
		if e.Type.Terminal() {
			t.Errorf("%+v", e)
		}
	}
}

func TestStepsAreSampled(t *testing.T) {
	r := newRig(t)
	var steps []schema.Step
	spyBodies(t, r.srv.URL, "step.*", func(body []byte) {
		var s schema.Step
		if err := schema.Decode(body, &s); err != nil {
			t.Error(err)
		}
		r.note(func() { steps = append(steps, s) })
	})
	r.run(func(c *worker.Config, _ *mock.Config) { c.StepSample = 4 })
	req := newRequest(t, make([]int32, 300), 39) // two chunks, then 38 decodes: 40 steps
	r.accept(req, 1)
	r.wait("ten steps", func() bool { return len(steps) == 10 })
	for i, s := range steps {
		if s.Worker != r.w.ID() || s.Step != uint64(4*(i+1)) || s.DecodeBatch != 1 || s.PrefillTokens != 0 || s.ContextTokens != 300+int32(s.Step)-2 {
			t.Errorf("step %+v", s)
		}
	}
}

func TestConfig(t *testing.T) {
	r := newRig(t)
	m, err := mock.New(mock.FreeConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []func(*worker.Config){
		func(c *worker.Config) { c.Name = "a b" },
		func(c *worker.Config) { c.FenceAfter = c.Heartbeat },
		func(c *worker.Config) { c.StepSample = 0 },
		func(c *worker.Config) { c.PageTokens = 1 << 16 }, // no whole page in the engine's cells
	} {
		cfg := worker.DefaultConfig()
		set(&cfg)
		if _, err := worker.New(cfg, r.client, m, discard, registry()); !errors.Is(err, worker.ErrConfig) {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w, err := worker.New(worker.DefaultConfig(), r.client, m, discard, registry())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(ctx); err != nil { // stopped before it began
		t.Fatal(err)
	}
}
