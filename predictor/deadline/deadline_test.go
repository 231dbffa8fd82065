package deadline_test

import (
	"math"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

func TestDoomed(t *testing.T) {
	fast := deadline.Speed{PrefillToken: ms, Step: 10 * ms}
	for _, x := range []struct {
		name            string
		speed           deadline.Speed
		left            deadline.Left
		prefill, tokens int
		want            bool
	}{
		{"no objective", fast, deadline.Left{}, 1 << 30, 1 << 30, false},
		{"late", deadline.Speed{}, deadline.Left{E2E: -1}, 0, 1, true},
		{"unknown speed", deadline.Speed{}, deadline.Left{E2E: 1}, 1 << 30, 1 << 30, false},
		{"just in time", fast, deadline.Left{E2E: 120 * ms}, 100, 3, false}, // 100 of prefill, which makes the first, and 2 steps
		{"just too late", fast, deadline.Left{E2E: 120*ms - 1}, 100, 3, true},
		{"decoding in time", fast, deadline.Left{E2E: 30 * ms}, 0, 3, false},
		{"decoding too late", fast, deadline.Left{E2E: 30*ms - 1}, 0, 3, true},
		{"first token too late, answer not", fast, deadline.Left{E2E: time.Second, TTFT: -1}, 100, 3, false},
		{"first token too late", fast, deadline.Left{TTFT: -1}, 0, 3, true},
		{"first token in time", fast, deadline.Left{TTFT: 100 * ms}, 100, 1 << 20, false},
		{"first token not in time", fast, deadline.Left{TTFT: 100*ms - 1}, 100, 1, true},
		{"a little prefill takes a step", fast, deadline.Left{E2E: 10*ms - 1}, 2, 1, true},
		{"more than there is time", fast, deadline.Left{E2E: math.MaxInt64}, math.MaxInt, math.MaxInt, false},
	} {
		if got := x.speed.Doomed(x.left, x.prefill, x.tokens); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}

func TestSpeedOfACostModel(t *testing.T) {
	got := deadline.Of(func(prefill, decodes, context int) time.Duration {
		return 5*ms + time.Duration(prefill)*ms/4 + time.Duration(decodes)*ms + time.Duration(context)
	})
	if want := (deadline.Speed{PrefillToken: ms / 4, Step: 5*ms + ms/4 + 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := deadline.Of(func(int, int, int) time.Duration { return 0 }); got != (deadline.Speed{}) {
		t.Errorf("%+v of an engine that takes no time", got)
	}
}

// Whatever helps a request never dooms it.
func TestDoomIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := func(name string, lo, hi int64) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		s := deadline.Speed{PrefillToken: time.Duration(d("prefill_token", 0, 1e6)), Step: time.Duration(d("step", 0, 1e8))}
		l := deadline.Left{E2E: time.Duration(d("e2e", -1e9, 1e10)), TTFT: time.Duration(d("ttft", -1e9, 1e10))}
		prefill, tokens := int(d("prefill", 0, 1e4)), int(d("tokens", 1, 1e3))
		if s.Doomed(l, prefill, tokens) {
			return
		}
		faster := s.Min(deadline.Speed{PrefillToken: time.Duration(d("faster_prefill", 0, 1e6)), Step: time.Duration(d("faster_step", 0, 1e8))})
		more := l
		if l.E2E != 0 {
			more.E2E += time.Duration(d("more", 0, 1e9))
		}
		if l.TTFT != 0 {
			more.TTFT += time.Duration(d("sooner", 0, 1e9))
		}
		if more.E2E == 0 && l.E2E != 0 || more.TTFT == 0 && l.TTFT != 0 {
			return // 0 is no objective
		}
		if faster.Doomed(more, int(d("less_prefill", 0, int64(prefill))), int(d("less", 1, int64(tokens)))) {
			t.Fatalf("%+v of %+v with %d and %d tokens is doomed by what helps", s, l, prefill, tokens)
		}
	})
}
