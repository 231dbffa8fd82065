package streams_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// inProcess connects as `cadence up` does, without a socket.
func inProcess(b *testing.B) *streams.Client {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := streams.StartServer(streams.ServerConfig{Dir: b.TempDir(), Durability: streams.DurableProcess}, log)
	if err != nil {
		b.Fatal(err)
	}
	c, err := streams.Connect(b.Context(), streams.DefaultConfig(), s, log, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		if err := s.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := c.Setup(b.Context()); err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkPublishRequest is the synchronous store on the path to the first token: go test -bench PublishRequest ./streams
func BenchmarkPublishRequest(b *testing.B) {
	c := inProcess(b)
	body := make([]byte, 2048)
	for b.Loop() {
		if _, err := c.PublishRequest(b.Context(), "p", id(b), body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEventWriter is an event emitted and stored, without waiting in between.
func BenchmarkEventWriter(b *testing.B) {
	c := inProcess(b)
	w := c.NewEventWriter(b.Context(), 4096, nil)
	rid := id(b)
	for n := uint32(1); b.Loop(); n++ {
		if err := w.Emit(&schema.Event{Type: schema.Preempted, Time: 1, Source: "bench", Request: rid, Attempt: 1, Ordinal: n, Worker: "w"}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkChunk is a chunk sent and received.
func BenchmarkChunk(b *testing.B) {
	c := inProcess(b)
	got := make(chan int32, 1<<16)
	if _, err := c.SubscribeChunks("i", func(ch *schema.Chunk) { got <- ch.Index }); err != nil {
		b.Fatal(err)
	}
	rid := id(b)
	n := int32(0)
	for ; b.Loop(); n++ {
		if err := c.PublishChunk("i", &schema.Chunk{Request: rid, Attempt: 1, Index: n, IDs: schema.Tokens{7}, Text: " word"}); err != nil {
			b.Fatal(err)
		}
		if n%1024 == 1023 { // stay within the connection's buffer
			for range 1024 {
				<-got
			}
		}
	}
}

// BenchmarkAppend is one fenced group of 16.
func BenchmarkAppend(b *testing.B) {
	c := inProcess(b)
	a, err := c.ClaimPool(b.Context(), "p", "s", time.Now())
	if err != nil {
		b.Fatal(err)
	}
	for n := uint64(1); b.Loop(); n += 16 {
		events := make([]*schema.Event, 16)
		for i := range events {
			events[i] = accepted(id(b), n+uint64(i))
		}
		if _, err := a.Append(b.Context(), events); err != nil {
			b.Fatal(err)
		}
	}
}
