package scheduler

import (
	"time"

	"github.com/cadence-slo/cadence/schema"
)

const (
	// tellEvery is the longest time between two states of the pool.
	tellEvery = 250 * time.Millisecond
	// tellGap is the least, and tellEach more of it for each request that the last one listed: where many wait, one more matters
	// little, and 512 take a millisecond to encode.
	tellGap  = 20 * time.Millisecond
	tellEach = 200 * time.Microsecond
)

// teller publishes what waits for the pool's workers. The owner fills a state, a goroutine of its own encodes and sends it.
type teller struct {
	blank, filled chan *schema.PoolState // room for one: there is one state
	timer         *time.Timer            // a change waits to be told
	armed         bool
	gap           time.Duration // after the last state
	told          time.Time     // when it was
	changes, read uint64        // as it had them
	folded        uint64        // in REQUESTS: what the restored core knew
}

func newTeller(folded uint64) teller {
	t := teller{blank: make(chan *schema.PoolState, 1), filled: make(chan *schema.PoolState, 1), timer: time.NewTimer(time.Hour), folded: folded}
	t.timer.Stop()
	t.blank <- &schema.PoolState{Interval: tellEvery}
	return t
}

// tell has a state sent if something has changed and the last one is old enough, or if that is very old.
func (r *run) tell() {
	t, now := &r.teller, time.Now()
	changes, age := r.core.Changes(), now.Sub(t.told)
	if changes == t.changes && r.read == t.read && age < tellEvery {
		return
	}
	if age >= t.gap && r.client.Connected() {
		select {
		case s := <-t.blank:
			r.core.Snapshot(s, now.UnixNano())
			s.RequestSeq = max(r.read, t.folded)
			t.told, t.changes, t.read = now, changes, r.read
			t.gap = tellGap + time.Duration(len(s.Waiting))*tellEach
			t.filled <- s
			return
		default: // the last one is still being sent
		}
	}
	if !t.armed {
		t.armed = true
		t.timer.Reset(max(t.gap-age, tellGap/4))
	}
}

// tellStates sends what the owner has filled.
func (r *run) tellStates() {
	for {
		select {
		case s := <-r.teller.filled:
			if err := r.client.PublishPoolState(s); err != nil {
				r.log.Warn("pool state not sent", "error", err)
			}
			r.teller.blank <- s
		case <-r.work.Done():
			return
		}
	}
}
