package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
)

// The benchmarks run with
//
//	go test ./scheduler/core -run '^$' -bench . -benchmem
//
// A request's whole way through the core, with the queue already holding so many: accepted and dispatched go into one
// append, the dispatch is answered, its worker finishes it. The time is of one request; 1,500 requests/s leave 667 µs for
// everything, of which the core should be a small part.
func BenchmarkEnqueueDispatch(b *testing.B) {
	for _, depth := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("queue=%d", depth), func(b *testing.B) { benchmark(b, depth) })
	}
}

// BenchmarkPick is a pick alone: the head of a queue of so many goes to a worker that has room, and comes back refused.
func BenchmarkPick(b *testing.B) {
	for _, depth := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprintf("queue=%d", depth), func(b *testing.B) {
			d := newDriver(b)
			d.fill(depth)
			w := d.beat(0, 1)
			b.ReportAllocs()
			for b.Loop() {
				d.c.WorkerState(w, d.now)
				d.turn()
				d.turn()
				d.answer(schema.VerdictFull)
			}
		})
	}
}

// driver plays a world in which everything goes well, as cheaply as it can.
type driver struct {
	c        *core.Core
	now      int64
	n        int
	sent     []core.Dispatch
	inFlight bool
	running  []schema.RequestID // a queue of what was dispatched
	verdicts []schema.Verdict
	finished schema.Stored
}

func newDriver(b *testing.B) *driver {
	cfg := core.DefaultConfig(pool, "s")
	cfg.MaxQueueWait = 0
	c, err := core.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return &driver{c: c, now: start, finished: schema.Stored{Event: schema.Event{Type: schema.Finished, Attempt: 1, Reason: "stop"}}}
}

func (d *driver) beat(i int, slots int32) *schema.WorkerState {
	w := &schema.WorkerState{Worker: schema.WorkerID(fmt.Sprintf("w%02d", i)), Pool: pool, Model: "m", Interval: time.Second,
		Slots: slots, PageTokens: 16, KVPages: 1 << 20}
	d.c.WorkerState(w, d.now)
	return w
}

func (d *driver) enqueue(id schema.RequestID, body []byte) {
	d.n++
	d.now += 1000
	d.c.Enqueue(core.Request{ID: id, Model: "m", Tenant: "t", Ingress: "i1", Kind: schema.KindChat, PromptTokens: 500, MaxTokens: 64,
		Budget: time.Duration(1+d.n*7919%1000) * time.Second, Seq: uint64(d.n), StoredAt: d.now, Body: body}, d.now)
}

// fill lets so many wait.
func (d *driver) fill(depth int) {
	for range depth {
		d.enqueue(rid(d.n+1), nil)
		d.turn()
	}
	for d.inFlight {
		d.turn()
	}
}

// turn stores what is in flight and takes what is to be done.
func (d *driver) turn() {
	if d.inFlight {
		d.c.Appended()
	}
	rd := d.c.Ready(d.now)
	d.inFlight = len(rd.Events) > 0
	for _, e := range rd.Events {
		if e.Type == schema.Dispatched {
			d.running = append(d.running, e.Request)
		}
	}
	d.sent = append(d.sent[:0], rd.Dispatches...)
}

func (d *driver) answer(v schema.Verdict) {
	for _, s := range d.sent {
		d.verdicts = d.verdicts[:0]
		for range s.Items {
			d.verdicts = append(d.verdicts, v)
		}
		d.c.DispatchAnswer(core.Answer{Worker: s.Worker, Number: s.Number, Verdicts: d.verdicts}, d.now)
	}
}

func benchmark(b *testing.B, depth int) {
	d := newDriver(b)
	d.fill(depth)
	for i := range 8 {
		d.beat(i, 4)
	}
	d.turn()
	ids := make([]schema.RequestID, b.N)
	for i := range ids {
		ids[i] = rid(1_000_000 + i)
	}
	body := []byte("{}")
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		d.enqueue(ids[i], body)
		if len(d.running) > 0 {
			d.finished.Request = d.running[0]
			d.running = append(d.running[:0], d.running[1:]...)
			d.c.Event(&d.finished, d.now)
		}
		d.turn()
		d.turn()
		d.answer(schema.VerdictAccepted)
	}
	b.StopTimer()
	if got := d.c.Stats(d.now).Waiting; b.N > 100 && (got < depth-32 || got > depth+2) {
		b.Fatalf("%d wait, want about %d", got, depth)
	}
}
