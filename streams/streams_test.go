package streams_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

func id(t testing.TB) schema.RequestID {
	t.Helper()
	s, err := schema.NewID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return schema.RequestID(s)
}

func accepted(id schema.RequestID, seq uint64) *schema.Event {
	return &schema.Event{Type: schema.Accepted, Time: 1, Source: "test", Request: id, Pool: "p", Tenant: "t", Ingress: "i1", RequestSeq: seq}
}

func TestAppenderIsFencedByALaterClaim(t *testing.T) {
	for _, replicas := range []int{1, 3} { // 3 takes the atomic path; the streams themselves stay unreplicated
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			c := streamstest.Start(t).Client(t)
			atomic := c
			if replicas > 1 {
				atomic = streams.WithReplicas(c, replicas)
			}
			ctx := t.Context()
			old, err := atomic.ClaimPool(ctx, "p", "s1", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			seqs, err := old.Append(ctx, []*schema.Event{accepted(id(t), 1), accepted(id(t), 2)})
			if err != nil || len(seqs) != 2 || seqs[1] != seqs[0]+1 {
				t.Fatalf("append: %v, %v", seqs, err)
			}
			if _, err := atomic.ClaimPool(ctx, "p", "s2", time.Now()); err != nil {
				t.Fatal(err)
			}
			if _, err := old.Append(ctx, []*schema.Event{accepted(id(t), 3)}); !errors.Is(err, streams.ErrFenced) {
				t.Fatalf("append of the deposed scheduler: %v, want ErrFenced", err)
			}
			// Another pool's claim fences nobody here.
			if _, err := atomic.ClaimPool(ctx, "q", "s3", time.Now()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRepeatedPublishIsStoredOnce(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	rid := id(t)
	first, err := c.PublishRequest(t.Context(), "p", rid, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.PublishRequest(t.Context(), "p", rid, []byte("{}"))
	if err != nil || second != first {
		t.Fatalf("repeated: %d, %v, want %d", second, err, first)
	}
	e := accepted(rid, first)
	a, err := c.PublishEvent(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := c.PublishEvent(t.Context(), e); err != nil || a != b {
		t.Fatalf("repeated event: %d, %v, want %d", b, err, a)
	}
}

func TestTailReadsOnAfterServerRestart(t *testing.T) {
	s := streamstest.Start(t)
	c := s.Client(t)
	w := c.NewEventWriter(t.Context(), 1000, nil)
	got := make(chan uint64, 4096)
	tail, pending, err := c.TailEvents(t.Context(), 0, []schema.Type{schema.Accepted}, func(e *schema.Stored, _ uint64) { got <- e.RequestSeq }, func(seq uint64, _ []byte, err error) { t.Errorf("bad event at %d: %v", seq, err) })
	if err != nil || pending != 0 {
		t.Fatalf("tail: %d pending, %v", pending, err)
	}
	defer tail.Stop()
	const n = 600
	for i := range uint64(n) {
		if i == n/2 {
			s.Restart(t)
		}
		if err := w.Emit(accepted(id(t), i+1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(n) {
		if seq := streamstest.Receive(t, got); seq != i+1 {
			t.Fatalf("event %d is %d", i, seq)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestChunksCanBeReadBack(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	rid := id(t)
	live := make(chan *schema.Chunk, 600)
	if _, err := c.SubscribeChunks("i1", func(ch *schema.Chunk) { live <- ch }); err != nil {
		t.Fatal(err)
	}
	const n = 600 // more than two batches
	for i := range int32(n) {
		if err := c.PublishChunk("i1", &schema.Chunk{Request: rid, Attempt: 1, Index: i, IDs: schema.Tokens{i}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int32(n) {
		if ch := streamstest.Receive(t, live); ch.Index != i {
			t.Fatalf("live chunk %d has index %d", i, ch.Index)
		}
	}
	// A chunk may be heard before it is stored.
	var chunks []*schema.Chunk
	for deadline, tick := time.Now().Add(10*time.Second), time.NewTicker(5*time.Millisecond); len(chunks) < n; <-tick.C {
		var err error
		if chunks, err = c.Chunks(t.Context(), "i1", rid); err != nil || time.Now().After(deadline) {
			t.Fatalf("%d chunks of %d, %v", len(chunks), n, err)
		}
	}
	for i, ch := range chunks {
		if int(ch.Index) != i {
			t.Fatalf("stored chunk %d has index %d", i, ch.Index)
		}
	}
	if none, err := c.Chunks(t.Context(), "i1", id(t)); err != nil || len(none) != 0 {
		t.Fatalf("unknown request: %d chunks, %v", len(none), err)
	}
}

func TestRequestReply(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	d := &schema.Dispatch{Pool: "p", Epoch: 7, Items: []schema.DispatchItem{{Attempt: 1, Request: []byte(`{"v":1}`)}}}
	if _, err := c.Dispatch(ctx, "w1", d); !errors.Is(err, streams.ErrNoListener) {
		t.Fatalf("dispatch to nobody: %v, want ErrNoListener", err)
	}
	if _, err := c.ServeDispatch("w1", func(d *schema.Dispatch) *schema.DispatchReply {
		return &schema.DispatchReply{Worker: "w1", Epoch: d.Epoch, Verdicts: []schema.Verdict{schema.VerdictAccepted}}
	}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Dispatch(ctx, "w1", d); err != nil || r.Epoch != 7 || r.Verdicts[0] != schema.VerdictAccepted {
		t.Fatalf("dispatch: %+v, %v", r, err)
	}
	rid := id(t)
	if _, err := c.ServeSeal("i1", func(s *schema.Seal) *schema.SealReply {
		return &schema.SealReply{Known: true, Relayed: schema.Tokens{1, 2, 3}}
	}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Seal(ctx, "i1", &schema.Seal{Request: rid, Attempt: 1}); err != nil || len(r.Relayed) != 3 {
		t.Fatalf("seal: %+v, %v", r, err)
	}
}

func TestRequestBySequence(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	seq, err := c.PublishRequest(t.Context(), "p", id(t), []byte(`{"x":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Request(t.Context(), seq); err != nil || string(r.Body) != `{"x":1}` {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := c.Request(t.Context(), seq+1); !errors.Is(err, streams.ErrGone) {
		t.Fatalf("absent request: %v, want ErrGone", err)
	}
}

func TestPayloadAboveTheLimit(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	if _, err := c.PublishRequest(t.Context(), "p", id(t), make([]byte, streams.MaxPayload+1)); !errors.Is(err, streams.ErrTooLarge) {
		t.Fatalf("%v, want ErrTooLarge", err)
	}
}

func TestStoreDirectoryIsLocked(t *testing.T) {
	s := streamstest.Start(t)
	_, err := streams.StartServer(streams.ServerConfig{Dir: s.Dir, Durability: streams.DurableProcess}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, streams.ErrLocked) {
		t.Fatalf("second server on one directory: %v, want ErrLocked", err)
	}
}

func TestSetupKeepsDataAndNeverLowersLimits(t *testing.T) {
	s := streamstest.Start(t)
	c := s.Client(t)
	if _, err := c.PublishRequest(t.Context(), "p", id(t), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	cfg := streams.DefaultConfig()
	cfg.Limits.RequestsAge, cfg.Limits.RequestsBytes = time.Second, 1
	small := s.ClientWith(t, cfg)
	if err := small.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := c.Usage(t.Context(), streams.Requests)
	if err != nil || u.Messages != 1 || u.MaxBytes != uint64(streams.DefaultLimits().RequestsBytes) {
		t.Fatalf("after a set-up with tiny limits: %+v, %v", u, err)
	}
}
