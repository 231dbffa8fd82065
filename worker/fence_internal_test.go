package worker

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

func offered(t *testing.T, id schema.RequestID, attempt uint32) schema.DispatchItem {
	t.Helper()
	body, err := schema.Encode(&schema.Request{ID: id, Pool: "p", Tenant: "t", Ingress: "i", Kind: schema.KindCompletion, Prompt: schema.Tokens{1}, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	return schema.DispatchItem{Attempt: attempt, Request: body}
}

// A repeated dispatch finds a life that is over: what that life took must not look free, because its tokens may have
// been sent. The scheduler seals it, and places only the rest elsewhere at once.
func TestLifeThatIsOverOwnsWhatItTook(t *testing.T) {
	b := newBook("p", 100, 8, batch.DefaultConfig())
	l := &life{id: "w-1"}
	b.begin(l)
	const taken, other = schema.RequestID("0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01"), schema.RequestID("0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a02")
	d := &schema.Dispatch{Pool: "p", Epoch: 1, Items: []schema.DispatchItem{offered(t, taken, 1)}}
	bad := func(_ int, err error) { t.Error(err) }
	if r := b.offer(l, d, 0, false, bad); r.Verdicts[0] != schema.VerdictAccepted {
		t.Fatalf("first: %v", r.Verdicts)
	}
	d.Items = append(d.Items, offered(t, other, 1))
	check := func(when string) {
		t.Helper()
		if r := b.offer(l, d, 0, true, bad); r.Verdicts[0] != schema.VerdictDuplicate || r.Verdicts[1] != schema.VerdictDraining {
			t.Errorf("%s: %v", when, r.Verdicts)
		}
	}
	check("over")
	b.begin(&life{id: "w-2"})
	check("after another life began")
}

type noWire struct{ t *testing.T }

func (w noWire) PublishChunk(schema.IngressID, *schema.Chunk) error {
	w.t.Error("a silent life was heard")
	return nil
}
func (noWire) PublishStep(*schema.Step) error { return nil }

// A life that kept something to itself because it was silent is over, even if a heartbeat leaves in the same moment.
func TestSilentPublisherEndsTheLife(t *testing.T) {
	var now atomic.Int64
	p := pulse{limit: time.Second}
	l := &life{id: "w-1"}
	var fenced *life
	pub := publisher{wire: noWire{t}, pulse: &p, now: func() time.Duration { return time.Duration(now.Load()) },
		fence: func(l *life) { fenced = l }, log: slog.New(slog.DiscardHandler)}
	now.Store(int64(time.Second) + 1)
	pub.send(&run{life: l, sending: bundle{ids: []int32{1}}})
	p.beat(time.Second) // the heartbeat that looked at its watch just before
	if fenced != l {
		t.Error("the life goes on without what was dropped")
	}
}
