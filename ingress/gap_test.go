package ingress

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

func TestWhenTokensAreLookedFor(t *testing.T) {
	now := time.Unix(1000, 0)
	a := &answer{quiet: now, patience: 5 * time.Second}
	at := func(d time.Duration, look, giveUp bool) {
		t.Helper()
		if l, g := a.overdue(now.Add(d)); l != look || g != giveUp {
			t.Errorf("after %v: %v, %v, want %v, %v", d, l, g, look, giveUp)
		}
	}
	at(4*time.Second, false, false)
	at(5*time.Second, true, false)
	at(6*time.Second, false, false) // patience grows
	at(14*time.Second, false, false)
	at(15*time.Second, true, false)
	a.filling = true
	at(time.Hour, false, false)
	a.filling = false
	at(time.Hour, true, false)
	at(time.Hour+maxPatience, true, false) // up to a limit

	a.held, a.gapSince, a.looked = []*schema.Chunk{{}}, now, now
	at(gapRetry/2, false, false)
	at(gapRetry, true, false)
	a.looked = now.Add(gapLimit)
	at(gapLimit, false, true)
	a.finish = &schema.Finish{}
	at(time.Hour, false, false)
}
