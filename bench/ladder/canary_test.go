package ladder

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/record"
)

// Two arms on the same machine have the same canary, however long one of them waits for a batch.
func TestPace(t *testing.T) {
	for _, wait := range []time.Duration{0, 50 * time.Millisecond, time.Minute} {
		c := record.Canary{Tokens: 64}
		if pace(&c, &load.Record{Outcome: load.OK, TTFT: wait + time.Millisecond, E2E: wait + 64*time.Millisecond}); c.TokensRate != 1000 || c.Err != "" {
			t.Errorf("%+v", c)
		}
	}
	for name, r := range map[string]load.Record{
		"failed": {Outcome: load.HTTPError, Err: "500", TTFT: 1, E2E: 2}, "no text": {Outcome: load.OK, TTFT: -1, E2E: 2}, "in one piece": {Outcome: load.OK, TTFT: 2, E2E: 2},
	} {
		c := record.Canary{Tokens: 64}
		if pace(&c, &r); c.Err == "" || c.TokensRate != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	one := record.Canary{Tokens: 1}
	if pace(&one, &load.Record{Outcome: load.OK, TTFT: 1, E2E: 2}); one.Err == "" {
		t.Errorf("%+v", one)
	}
}
