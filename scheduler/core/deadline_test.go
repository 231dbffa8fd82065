package core_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

// timed is a request that comes at the start and takes its time alone on the worker.
type timed struct {
	request core.Request
	takes   time.Duration
}

// served plays one worker with one slot until every request has ended, and returns when each did, and how.
func served(t *rapid.T, jobs []timed, late schema.OnDeadline) ([]time.Duration, []schema.Type) {
	w := newWorld(t, core.DefaultConfig(pool, "s"))
	w.write(&schema.Event{Type: schema.WorkerUp, Worker: "w1", Pool: pool, Source: "w1"})
	beat := func() {
		w.c.WorkerState(&schema.WorkerState{Worker: "w1", Pool: pool, Model: "m", Interval: 500 * time.Millisecond, Slots: 1, PageTokens: 16}, w.now)
		w.c.IngressState(&schema.IngressState{Ingress: "i1", Interval: 500 * time.Millisecond}, w.now)
	}
	settle := func() {
		for more := true; more; {
			w.step()
			if more = w.tail(); w.group != nil {
				w.store(len(w.group))
				w.acknowledge()
				more = true
			}
		}
	}
	settle()
	beat()
	w.c.SetSpeed("w1", deadline.Speed{Step: 10 * time.Millisecond, PrefillToken: time.Millisecond})
	began := w.now
	for _, j := range jobs {
		j.request.OnDeadline = late
		w.add(j.request)
	}
	at, how := make([]time.Duration, len(jobs)), make([]schema.Type, len(jobs))
	note := func() {
		for i := range jobs {
			if end := w.settled[rid(i+1)]; end != "" && how[i] == "" {
				at[i], how[i] = time.Duration(w.now-began), end
			}
		}
	}
	for {
		settle()
		note()
		d, ok := w.dispatches["w1"]
		if !ok {
			break
		}
		delete(w.dispatches, "w1")
		w.c.DispatchAnswer(core.Answer{Worker: "w1", Number: d.Number, Verdicts: []schema.Verdict{schema.VerdictAccepted}}, w.now)
		id := w.idOf(d.Items[0].Request)
		n, err := strconv.Atoi(num(id))
		if err != nil {
			t.Fatal(err)
		}
		const tick = 500 * time.Millisecond
		for left := jobs[n-1].takes; left > 0; left -= tick {
			w.now += int64(min(left, tick))
			beat()
			w.c.Tick(w.now)
			settle()
			note()
		}
		w.write(&schema.Event{Type: schema.Finished, Request: id, Worker: "w1", Attempt: d.Items[0].Attempt, Reason: "stop", Source: "w1"})
	}
	for i := range jobs {
		if how[i] == "" {
			t.Fatalf("request %d has not ended", i+1)
		}
	}
	if live := w.c.Live(); len(live) > 0 {
		t.Fatalf("%v are left", live)
	}
	return at, how
}

// With one worker that serves one at a time, nobody who is in time where the late are not demoted is later where they are, nor where
// they are ended; nobody is ended who asked for no more than could be had.
func TestDemotionDelaysNobodyWhoIsInTime(t *testing.T) {
	demoted, ended := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		jobs := make([]timed, rapid.IntRange(1, 10).Draw(t, "requests"))
		for i := range jobs {
			q := core.Request{ID: rid(i + 1), Model: "m", Tenant: "t", Ingress: "i1", Kind: schema.KindChat,
				PromptTokens: rapid.Int32Range(1, 200).Draw(t, "prompt"), MaxTokens: rapid.Int32Range(1, 40).Draw(t, "max"), Budget: time.Duration(rapid.IntRange(0, 3000).Draw(t, "budget")) * time.Millisecond,
				Class: rapid.SampledFrom([]schema.Class{"", "", schema.Guaranteed}).Draw(t, "class")}
			if rapid.Bool().Draw(t, "whole") {
				q.MinTokens = q.MaxTokens
			}
			speed := deadline.Speed{Step: 10 * time.Millisecond, PrefillToken: time.Millisecond}
			least := speed.Least(int(q.PromptTokens), max(1, int(q.MinTokens)))
			jobs[i] = timed{q, least + time.Duration(rapid.IntRange(0, 300).Draw(t, "more"))*time.Millisecond}
		}
		plain, _ := served(t, jobs, schema.OnDeadlineContinue)
		later, _ := served(t, jobs, schema.OnDeadlineDemote)
		cut, how := served(t, jobs, schema.OnDeadlineCancel)
		for i, j := range jobs {
			inTime := j.request.Budget == 0 || plain[i] <= j.request.Budget
			if j.request.Budget > 0 && inTime && (later[i] > plain[i] || cut[i] > plain[i] || how[i] != schema.Finished) {
				t.Fatalf("request %d of %v: done at %v, with demotion at %v, with cancels %s at %v", i+1, j.request.Budget, plain[i], later[i], how[i], cut[i])
			}
			if j.request.Budget == 0 && how[i] != schema.Finished {
				t.Fatalf("request %d has no deadline and %s", i+1, how[i])
			}
			if later[i] > plain[i] {
				demoted++
			}
			if how[i] == schema.Failed {
				ended++
			}
		}
	})
	if demoted < 100 || ended < 100 {
		t.Errorf("%d were demoted and %d ended: too few to tell", demoted, ended)
	}
}

// What a request is to a worker comes from the request as the ingress published it.
func TestRequestTakesItsObjectives(t *testing.T) {
	r := schema.Request{MaxTokens: 9, Budget: 5, TTFTBudget: 3, OnDeadline: schema.OnDeadlineCancel, IgnoreEOS: true}
	if q := core.NewRequest(&r, 1, 2, nil); q.Budget != 5 || q.TTFTBudget != 3 || q.OnDeadline != schema.OnDeadlineCancel || q.MinTokens != 9 {
		t.Errorf("%+v", q)
	}
	for _, r := range []schema.Request{
		{MaxTokens: 9}, {MaxTokens: 9, IgnoreEOS: true, Stop: []string{"x"}}, {MaxTokens: 9, IgnoreEOS: true, Grammar: "root ::= \"x\""},
	} {
		if q := core.NewRequest(&r, 1, 2, nil); q.MinTokens != 0 {
			t.Errorf("%+v generates at least %d", r, q.MinTokens)
		}
	}
}
