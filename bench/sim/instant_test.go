package sim

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
)

// instant is a pipeline that takes no time, with an engine that takes 1 ms for each step and 1 ms more for ten tokens of prefill.
func instant(t testing.TB, requests []workload.Request, times ...time.Duration) Config {
	t.Helper()
	p := open(t, "mock")
	c := Config{
		Source: source(func(i int) workload.Request {
			r := requests[i]
			r.Prompt = prompt(i, len(r.Prompt))
			return r
		}),
		Arrivals: at(times...), Workers: 1, Batch: p.Batch(), Length: time.Minute, Drain: Forever, KeepITL: true,
		Profile: engine(func(prefill, _, _ int) time.Duration {
			return time.Millisecond + time.Duration(prefill)*time.Millisecond/10
		}),
	}
	c.Batch.PrefixCache = false
	return c
}

func of(promptTokens, output int) workload.Request {
	return workload.Request{Prompt: make([]int32, promptTokens), Cap: 100, Output: output}
}

// Whoever comes at the same instant is in the same step.
func TestSimultaneousArrivalsShareAStep(t *testing.T) {
	_, rows := simulate(t, instant(t, []workload.Request{of(10, 1), of(10, 1), of(10, 1)}, 0, 0, 0))
	for i := range rows {
		if rows[i].Queued != 0 || rows[i].E2E != 4*time.Millisecond {
			t.Errorf("request %d started after %v and ended after %v, want 0 and the 4 ms of one step", i, rows[i].Queued, rows[i].E2E)
		}
	}
}

// Who comes at the end of a step is in the next.
func TestArrivalAtTheEndOfAStepJoinsTheNext(t *testing.T) {
	_, rows := simulate(t, instant(t, []workload.Request{of(10, 9), of(10, 1)}, 0, 3*time.Millisecond)) // 2 ms of prefill, 1 ms of decoding
	if rows[1].Queued != 0 {
		t.Errorf("it started after %v", rows[1].Queued)
	}
}

// A request whose slot was of one that its client had given up in the middle of its last step is not cancelled in its stead.
func TestACancelIsOfOneRequest(t *testing.T) {
	c := instant(t, []workload.Request{of(90, 1), of(10, 1)}, 0, 10*time.Millisecond)
	c.ClientTimeout = 5 * time.Millisecond
	var log bytes.Buffer
	c.Events = &log
	_, rows := simulate(t, c)
	if rows[0].Outcome != record.Timeout || rows[1].Outcome != record.OK || rows[1].E2E != 2*time.Millisecond {
		t.Errorf("%+v", rows)
	}
	state, story := fold(t, log.Bytes())
	if len(state.Requests) != 0 || slices.Contains(story[schema.RequestID(rows[1].ID)], schema.Cancelled) {
		t.Errorf("%v", story)
	}
}

// What comes after Length is left out, and no time runs backwards.
func TestArrivalsEndWithLength(t *testing.T) {
	c := instant(t, []workload.Request{of(10, 5), of(10, 5), of(10, 5), of(10, 5)}, 0, 999*time.Millisecond, time.Second, 5*time.Second)
	c.Length, c.Drain = time.Second, time.Millisecond
	run, rows := simulate(t, c)
	if len(rows) != 2 || rows[1].Outcome != record.Censored || rows[1].E2E != 2*time.Millisecond || run.Wall != time.Second+time.Millisecond {
		t.Errorf("%+v, %+v", run, rows)
	}
}

// The simulator asks for what the load generator asks for: what a request promises and what ends it follow from that.
func TestMaxTokensAreTheForms(t *testing.T) {
	requests := []workload.Request{of(10, 7)}
	for _, capped := range []bool{false, true} {
		c := instant(t, requests, 0)
		c.Capped = capped
		seen := 0
		c.Admit = func(a *Arrival) Decision { seen = a.CapTokens; return Decision{} }
		var log bytes.Buffer
		c.Events = &log
		_, rows := simulate(t, c)
		form, finish := load.Form{Capped: capped}, schema.FinishLength
		if capped {
			finish = schema.FinishStop
		}
		if want := form.MaxTokens(&requests[0]); rows[0].CapTokens != want || seen != want || rows[0].OutputTokens != 7 {
			t.Errorf("capped %t: %d tokens are asked for, admission sees %d, want %d: %+v", capped, rows[0].CapTokens, seen, want, rows[0])
		}
		if err := ReadLog(&log, func(e *schema.Stored) error {
			if e.Type == schema.Finished && e.Reason != string(finish) {
				t.Errorf("capped %t: it ends by %s", capped, e.Reason)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
