package sim

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
)

// tardy is an engine for one at a time that takes 1 ms for each step, and three requests: one of 5 steps that has all the time there is, and
// behind it one of 50 that may take 20 ms, and one of 5 that may take 40.
func tardy(t testing.TB, what schema.OnDeadline) Config {
	t.Helper()
	named := func(class string, output int) workload.Request {
		r := of(10, output)
		r.Class = class
		return r
	}
	c := instant(t, []workload.Request{named("", 5), named("a", 50), named("b", 5)}, 0, 0, 0)
	c.Batch.MaxBatch, c.OnDeadline, c.Deadlines = 1, what, true
	c.Profile = engine(func(int, int, int) time.Duration { return time.Millisecond })
	c.SLOs = map[string]record.SLO{"": {}, "a": {E2E: 20 * time.Millisecond}, "b": {E2E: 40 * time.Millisecond}}
	return c
}

// What becomes of who is late is as the configuration says. Answers have their length from the start, so that 1 is known to be late.
func TestOnDeadline(t *testing.T) {
	const ms = time.Millisecond
	type end struct {
		outcome record.Outcome
		reason  string
		e2e     time.Duration
		tokens  int
	}
	ok := func(e2e time.Duration, tokens int) end { return end{record.OK, "", e2e, tokens} }
	for _, x := range []struct {
		what   schema.OnDeadline
		capped bool
		want   []end
	}{
		{schema.OnDeadlineContinue, false, []end{ok(5*ms, 5), ok(55*ms, 50), ok(60*ms, 5)}},
		{schema.OnDeadlineDemote, false, []end{ok(5*ms, 5), ok(60*ms, 50), ok(10*ms, 5)}},
		{"", false, []end{ok(5*ms, 5), ok(60*ms, 50), ok(10*ms, 5)}},
		{schema.OnDeadlineCancel, false, []end{ok(5*ms, 5), {record.Shed, "deadline", 0, 0}, ok(10*ms, 5)}},
		// Where an answer may end at any time, it is late when its time is over.
		{schema.OnDeadlineContinue, true, []end{ok(5*ms, 5), ok(55*ms, 50), ok(60*ms, 5)}},
		{schema.OnDeadlineCancel, true, []end{ok(5*ms, 5), {record.Error, "deadline", 20 * ms, 15}, ok(25*ms, 5)}},
	} {
		c := tardy(t, x.what)
		c.Capped = x.capped
		var log bytes.Buffer
		c.Events = &log
		run, rows := simulate(t, c)
		for i, want := range x.want {
			r := &rows[i]
			if got := (end{r.Outcome, r.Reason, r.E2E, r.OutputTokens}); got != want {
				t.Errorf("%q, capped %v: request %d: %+v, want %+v", x.what, x.capped, i, got, want)
			}
			if run.Good(r) != (want.outcome == record.OK && (c.SLOs[r.Class].E2E == 0 || want.e2e <= c.SLOs[r.Class].E2E)) {
				t.Errorf("%q: request %d is good: %v", x.what, i, run.Good(r))
			}
		}
		if state, _ := fold(t, log.Bytes()); len(state.Requests) > 0 {
			t.Errorf("%q: %d requests are left", x.what, len(state.Requests))
		}
	}
}

// A guaranteed request that would be late takes the place of best effort, which answers what it would have answered.
func TestGuaranteedTakesAPlace(t *testing.T) {
	const ms = time.Millisecond
	config := func(class string) Config {
		long, last := of(10, 90), of(10, 5)
		last.Class = class
		c := instant(t, []workload.Request{long, long, last}, 0, 0, 20*ms)
		c.Batch.MaxBatch, c.Deadlines = 2, true
		c.Profile = engine(func(int, int, int) time.Duration { return ms })
		c.SLOs = map[string]record.SLO{"": {}, "gold": {E2E: 10 * ms}, "guaranteed": {E2E: 10 * ms}}
		return c
	}
	run, rows := simulate(t, config("gold"))
	if run.Preemptions != 0 || rows[2].E2E != 75*ms {
		t.Errorf("best effort: %d preemptions, done after %v", run.Preemptions, rows[2].E2E)
	}
	plain := rows
	c := config("guaranteed")
	var log bytes.Buffer
	c.Events = &log
	run, rows = simulate(t, c)
	if run.Preemptions != 1 || rows[2].Outcome != record.OK || rows[2].E2E > 10*ms {
		t.Errorf("guaranteed: %d preemptions, %s after %v", run.Preemptions, rows[2].Outcome, rows[2].E2E)
	}
	for i := range 2 {
		if rows[i].Outcome != record.OK || rows[i].OutputTokens != plain[i].OutputTokens || rows[i].E2E > 100*ms {
			t.Errorf("request %d: %s with %d tokens after %v", i, rows[i].Outcome, rows[i].OutputTokens, rows[i].E2E)
		}
	}
	_, story := fold(t, log.Bytes())
	preempted := 0
	for i := range 2 {
		if slices.Contains(story[schema.RequestID(rows[i].ID)], schema.Preempted) {
			preempted++
		}
	}
	if preempted != 1 {
		t.Errorf("%d were preempted by the log", preempted)
	}
}

// Workers say what they expect, not what will be: by their profile, and by how much slower the engine was lately.
func TestWorkersExpect(t *testing.T) {
	const ms = time.Millisecond
	c := instant(t, []workload.Request{of(10, 100), of(10, 1), of(10, 1)}, 0, 500*time.Microsecond, 90*ms)
	c.Profile = engine(func(int, int, int) time.Duration { return 2 * ms })
	c.Believed = engine(func(int, int, int) time.Duration { return ms })
	var left []time.Duration
	var slow []float64
	c.Admit = func(a *Arrival) Decision {
		left, slow = append(left, a.Pool.Workers[0].StepLeft), append(slow, a.Pool.Workers[0].Slow)
		return Decision{}
	}
	simulate(t, c)
	if left[0] != 0 || left[1] != 500*time.Microsecond || slow[1] != 1 {
		t.Errorf("%v left and %v slow, want 0 where idle, and half of the step that it believes in", left, slow)
	}
	if slow[2] < 1.03 || slow[2] > 1.06 { // 90 ms of 2 s
		t.Errorf("%v slow after 90 ms", slow[2])
	}
}
