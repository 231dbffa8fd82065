package streams_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/nats-io/nats.go/jetstream"
)

func models(t *testing.T, c *streams.Client) *streams.ModelStore {
	t.Helper()
	m, err := c.Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func put(t *testing.T, m *streams.ModelStore, file string) string {
	t.Helper()
	digest, err := m.Put(t.Context(), []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// point moves the pool's pointer on from wherever it is.
func point(t *testing.T, m *streams.ModelStore, digest string) streams.ModelPointer {
	t.Helper()
	now, err := m.Current(t.Context(), "p")
	if err != nil && !errors.Is(err, streams.ErrNoModel) {
		t.Fatal(err)
	}
	p, err := m.Point(t.Context(), now.Revision, streams.ModelPointer{Pool: "p", Artifact: digest, Source: "test", Reason: "because"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A file comes back as it was, under its SHA-256, from another client and after a restart, however many chunks it has.
func TestModelFiles(t *testing.T) {
	s := streamstest.Start(t)
	m := models(t, s.Client(t))
	for _, n := range []int{1, 128 << 10, 300_001} {
		file := bytes.Repeat([]byte{byte(n), 7, 9}, n)
		digest := put(t, m, string(file))
		if sum := sha256.Sum256(file); digest != hex.EncodeToString(sum[:]) {
			t.Fatalf("its name is %s", digest)
		}
		if again := put(t, m, string(file)); again != digest {
			t.Fatalf("again it is %s", again)
		}
		s.Restart(t)
		got, err := models(t, s.Client(t)).Get(t.Context(), digest)
		if err != nil || !bytes.Equal(got, file) {
			t.Fatalf("%d bytes came back as %d: %v", len(file), len(got), err)
		}
	}
	for _, none := range []string{hex.EncodeToString(make([]byte, 32)), ""} {
		if _, err := m.Get(t.Context(), none); !errors.Is(err, streams.ErrNoModel) {
			t.Errorf("a model that is not there: %v", err)
		}
	}
}

// Other bytes under a model's name are found out, and so are chunks that are gone; a pointer to such a file is refused, and storing the
// file again mends it.
func TestModelDamage(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	m := models(t, c)
	digest := put(t, m, "a model")
	files, err := c.JetStream().ObjectStore(t.Context(), streams.Models)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.PutBytes(t.Context(), digest, []byte("another")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(t.Context(), digest); !errors.Is(err, streams.ErrModelDamaged) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := m.Point(t.Context(), 0, streams.ModelPointer{Pool: "p", Artifact: digest}); !errors.Is(err, streams.ErrModelDamaged) {
		t.Errorf("pointing at them: %v", err)
	}
	if _, err := m.Current(t.Context(), "p"); !errors.Is(err, streams.ErrNoModel) {
		t.Errorf("the pointer has moved: %v", err)
	}
	put(t, m, "a model")
	if got, err := m.Get(t.Context(), digest); err != nil || string(got) != "a model" {
		t.Errorf("mended: %q, %v", got, err)
	}

	// One of two chunks is lost.
	large := string(bytes.Repeat([]byte("model"), 40_000))
	digest = put(t, m, large)
	stream, err := c.JetStream().Stream(t.Context(), "OBJ_"+streams.Models)
	if err != nil {
		t.Fatal(err)
	}
	info, err := files.GetInfo(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	chunk, err := stream.GetLastMsgForSubject(t.Context(), "$O."+streams.Models+".C."+info.NUID)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), chunk.Sequence); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(t.Context(), digest); !errors.Is(err, streams.ErrModelDamaged) {
		t.Errorf("a lost chunk: %v", err)
	}
	put(t, m, large)
	if got, err := m.Get(t.Context(), digest); err != nil || string(got) != large {
		t.Errorf("mended: %d bytes, %v", len(got), err)
	}
	if _, err := m.Put(t.Context(), make([]byte, 64<<20+1)); !errors.Is(err, streams.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// Of many that move a pointer from the same place one succeeds, and the pool's history is what they did, latest first, to a bound.
func TestModelPointers(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	m := models(t, c)
	if h, err := m.History(t.Context(), "p"); err != nil || len(h) != 0 {
		t.Fatalf("a history of %d before the first: %v", len(h), err)
	}
	if _, err := m.Point(t.Context(), 0, streams.ModelPointer{Pool: "a.b"}); !errors.Is(err, schema.ErrInvalid) {
		t.Errorf("a pool without a name: %v", err)
	}
	if _, err := m.Point(t.Context(), 0, streams.ModelPointer{Pool: "p", Artifact: "0f"}); !errors.Is(err, streams.ErrNoModel) {
		t.Errorf("a model that is not there: %v", err)
	}
	var last streams.ModelPointer
	for round := range uint64(5) {
		digests := make([]string, 8)
		for i := range digests {
			digests[i] = put(t, m, fmt.Sprint(round, i))
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []streams.ModelPointer
		for _, d := range digests {
			wg.Go(func() {
				p, err := m.Point(t.Context(), last.Revision, streams.ModelPointer{Pool: "p", Artifact: d, Source: "s", Reason: "r"})
				if err != nil && !errors.Is(err, streams.ErrModelMoved) {
					t.Error(err)
				}
				if err == nil {
					mu.Lock()
					won = append(won, p)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		now, err := m.Current(t.Context(), "p")
		if err != nil || len(won) != 1 || now.Artifact != won[0].Artifact || now.Revision != won[0].Revision || now.Revision <= last.Revision {
			t.Fatalf("round %d: %d have won, the pointer is %+v: %v", round, len(won), now, err)
		}
		if now.Source != "s" || now.Reason != "r" || now.Pool != "p" || time.Since(now.At).Abs() > time.Minute {
			t.Fatalf("the pointer is %+v", now)
		}
		last = now
	}
	if _, err := m.Point(t.Context(), 0, streams.ModelPointer{Pool: "p"}); !errors.Is(err, streams.ErrModelMoved) {
		t.Errorf("as if there were none: %v", err)
	}
	if p, err := m.Point(t.Context(), 0, streams.ModelPointer{Pool: "q"}); err != nil || p.Artifact != "" {
		t.Errorf("another pool's: %+v, %v", p, err)
	}
	var want []string
	for i := range streams.ModelHistory + 3 {
		digest := put(t, m, fmt.Sprint("later ", i))
		point(t, m, digest)
		want = append([]string{digest}, want...)
	}
	h, err := m.History(t.Context(), "p")
	if err != nil || len(h) != streams.ModelHistory {
		t.Fatalf("a history of %d: %v", len(h), err)
	}
	for i, p := range h {
		if p.Artifact != want[i] {
			t.Errorf("history %d is %s, want %s", i, p.Artifact, want[i])
		}
	}
	// Back to an earlier one: a pointer like any other.
	back := point(t, m, h[7].Artifact)
	if now, err := m.Current(t.Context(), "p"); err != nil || now.Artifact != h[7].Artifact || now.Revision != back.Revision {
		t.Errorf("rolled back to %+v: %v", now, err)
	}
}

// A pointer that somebody deleted by hand says that there is no model, and can be moved on.
func TestModelPointerDeletedByHand(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	m := models(t, c)
	digest := put(t, m, "x")
	first := point(t, m, digest)
	kv, err := c.JetStream().KeyValue(t.Context(), streams.Models)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "models.p"); err != nil {
		t.Fatal(err)
	}
	now, err := m.Current(t.Context(), "p")
	if err != nil || now.Artifact != "" || now.Revision <= first.Revision {
		t.Fatalf("%+v, %v", now, err)
	}
	if p := point(t, m, digest); p.Revision <= now.Revision {
		t.Errorf("%+v", p)
	}
}

// A watcher sees the pointer that there is, later ones in order, also after the server was restarted, and those of its pool only.
func TestModelWatch(t *testing.T) {
	s := streamstest.Start(t)
	m := models(t, s.Client(t))
	a, b := put(t, m, "a"), put(t, m, "b")
	point(t, m, a)
	seen := make(chan streams.ModelPointer, 64)
	stop, err := m.Watch(t.Context(), "p", func(p streams.ModelPointer) { seen <- p })
	if err != nil {
		t.Fatal(err)
	}
	if p := streamstest.Receive(t, seen); p.Artifact != a {
		t.Fatalf("first %+v", p)
	}
	if _, err := m.Point(t.Context(), 0, streams.ModelPointer{Pool: "q", Artifact: b}); err != nil {
		t.Fatal(err)
	}
	point(t, m, b)
	if p := streamstest.Receive(t, seen); p.Artifact != b || p.Pool != "p" {
		t.Fatalf("then %+v", p)
	}
	s.Restart(t)
	other := models(t, s.Client(t))
	point(t, other, a)
	// What was seen already may be shown again.
	for p := streamstest.Receive(t, seen); p.Artifact != a; p = streamstest.Receive(t, seen) {
	}
	stop()
	stop()
	point(t, other, b)
	select {
	case p := <-seen:
		t.Errorf("after the end: %+v", p)
	default:
	}
}

// Pruning leaves what any pool's history names, and what is new.
func TestModelPrune(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	m := models(t, c)
	if n, err := m.Prune(t.Context(), time.Now()); n != 0 || err != nil {
		t.Fatalf("of nothing %d: %v", n, err)
	}
	old, present, stray := put(t, m, "old"), put(t, m, "present"), put(t, m, "stray")
	point(t, m, old)
	point(t, m, present)
	if n, err := m.Prune(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Fatalf("what is new: %d, %v", n, err)
	}
	if n, err := m.Prune(t.Context(), time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Fatalf("pruned %d: %v", n, err)
	}
	for digest, want := range map[string]error{old: nil, present: nil, stray: streams.ErrNoModel} {
		if _, err := m.Get(t.Context(), digest); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", digest, err, want)
		}
	}
}

// The buckets are made once, whoever comes first, and stay as they are.
func TestModelBucketsAreMadeOnce(t *testing.T) {
	s := streamstest.Start(t)
	var wg sync.WaitGroup
	for range 4 {
		c := s.Client(t)
		wg.Go(func() {
			if _, err := c.Models(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	kv, err := s.Client(t).JetStream().KeyValue(t.Context(), streams.Models)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := kv.Status(t.Context()); err != nil || st.History() != streams.ModelHistory {
		t.Errorf("history %d, %v", st.History(), err)
	}
	if _, err := s.Client(t).JetStream().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: streams.Models}); !errors.Is(err, jetstream.ErrBucketExists) {
		t.Errorf("%v", err)
	}
}
