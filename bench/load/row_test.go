package load

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
)

func TestIntervals(t *testing.T) {
	for _, c := range []struct {
		gaps   []time.Duration
		tokens int
		want   []time.Duration
	}{
		{[]time.Duration{10, 20}, 3, []time.Duration{10, 20}},         // one token each
		{[]time.Duration{10, 20}, 5, []time.Duration{5, 5, 10, 10}},   // two each
		{[]time.Duration{10, 20}, 4, []time.Duration{5, 5, 20}},       // one more than gaps
		{[]time.Duration{10, 20, 30}, 3, []time.Duration{10, 20, 30}}, // an event without a token of its own
		{nil, 9, nil}, // all in one event
		{[]time.Duration{10, 0, 20}, 4, []time.Duration{10, 0, 20}},        // two events in one read
		{[]time.Duration{7}, 1, []time.Duration{7}},                        // a rest of text
		{[]time.Duration{30}, 4, []time.Duration{10, 10, 10}},              // three in one event
		{[]time.Duration{12, 12}, 8, []time.Duration{3, 3, 3, 3, 4, 4, 4}}, // seven over two
	} {
		if got := AppendIntervals(nil, c.gaps, c.tokens); !slices.Equal(got, c.want) {
			t.Errorf("%v over %d tokens: %v, want %v", c.gaps, c.tokens, got, c.want)
		}
	}
	// Nothing of the time between the first and the last event is lost but what division leaves.
	rapid.Check(t, func(t *rapid.T) {
		gaps := rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 1e9), func(n int64) time.Duration { return time.Duration(n) }), 1, 20).Draw(t, "gaps")
		tokens := rapid.IntRange(0, 200).Draw(t, "tokens")
		got := AppendIntervals([]time.Duration{1}, gaps, tokens)[1:]
		if len(got) != max(len(gaps), tokens-1) {
			t.Fatalf("%d intervals", len(got))
		}
		var all, sum time.Duration
		for _, g := range gaps {
			all += g
		}
		for _, d := range got {
			sum += d
		}
		if sum > all || all-sum > time.Duration(len(got)) {
			t.Fatalf("%v of %v", sum, all)
		}
	})
}

// An answer without usage has the tokens that its events show.
func TestRowWithoutUsage(t *testing.T) {
	row := Row(&Record{Outcome: OK, TextEvents: 3, Gaps: []time.Duration{5, 6}}, &workload.Request{Prompt: []int32{1, 2}}, 9)
	if row.OutputTokens != 3 || row.PromptTokens != 2 || row.CapTokens != 9 || !slices.Equal(row.ITL, []time.Duration{5, 6}) || row.Queued != -1 || row.Outcome != record.OK {
		t.Errorf("%+v", row)
	}
}

// Every outcome of the client has its place in the books, and what is not an answer says why.
func TestEveryOutcomeHasItsPlace(t *testing.T) {
	for _, o := range Outcomes {
		got, reason := outcome(&Record{Outcome: o, Status: map[bool]int{true: 400}[o == HTTPError]})
		silent := got == record.OK || got == record.Timeout || got == record.Censored
		if !slices.Contains(record.Outcomes, got) || o != Refused && silent != (reason == "") {
			t.Errorf("%s is %s: %q", o, got, reason)
		}
	}
}

// What Progress tells is of the last ten whole seconds.
func TestMeter(t *testing.T) {
	var m meter
	ms := time.Millisecond
	for i := range 300 { // 15 s, 20 a second; each ends 500 ms later, every other one within its objective
		at := time.Duration(i) * 50 * ms
		m.send(at, time.Duration(i)*time.Microsecond)
		m.end(at+500*ms, &record.Request{Outcome: record.OK, TTFT: 100 * ms, E2E: time.Duration(i) * ms}, i%2 == 0)
	}
	m.send(15*time.Second, 0)
	m.send(15*time.Second, 0)
	m.end(15500*ms, &record.Request{Outcome: record.Shed}, false)
	p := m.progress(15900 * ms)
	if p.Sent != 302 || p.InFlight != 1 || p.Shed != 1 || p.Rate != 20 || p.Goodput != 10 || p.TTFT99 != 100*ms || p.E2E99 != 298*ms || p.LagMax != 299*time.Microsecond {
		t.Errorf("%+v", p)
	}
	if p := m.progress(time.Hour); p.Rate != 0 || p.E2E99 != 0 || p.Sent != 302 {
		t.Errorf("%+v", p)
	}
	m.send(time.Second, 0) // older than what is remembered
	var none meter
	if p := none.progress(10 * ms); p != (Progress{At: 10 * ms}) {
		t.Errorf("%+v", p)
	}
}
