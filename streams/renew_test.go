package streams_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/nats-io/nats.go/jetstream"
)

func TestRenew(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	reshape(t, c, func(s *jetstream.StreamConfig) { s.Duplicates = 100 * time.Millisecond })
	now := time.Now()
	a, err := c.ClaimPool(t.Context(), "p", "s1", now)
	if err != nil {
		t.Fatal(err)
	}
	first := a.Epoch()
	if err := a.Renew(t.Context(), 7, now); err != nil || a.Epoch() != first {
		t.Fatalf("a young claim in an empty stream: epoch %d after %d, %v", a.Epoch(), first, err)
	}
	late := now.Add(streams.DefaultLimits().EventsAge)
	if err := a.Renew(t.Context(), 7, late); err != nil || a.Epoch() <= first {
		t.Fatalf("an old claim: epoch %d after %d, %v", a.Epoch(), first, err)
	}
	if _, err := a.Append(t.Context(), []*schema.Event{accepted(id(t), 8)}); err != nil {
		t.Fatal(err)
	}
	// Another renewal was stored, and nobody was told.
	again, err := c.ClaimPool(t.Context(), "p", "s1", late)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Renew(t.Context(), 8, late.Add(streams.DefaultLimits().EventsAge)); err != nil || a.Epoch() != again.Epoch() {
		t.Fatalf("renewed before: epoch %d, want %d, %v", a.Epoch(), again.Epoch(), err)
	}
	if _, err := a.Append(t.Context(), []*schema.Event{accepted(id(t), 9)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ClaimPool(t.Context(), "p", "s2", late); err != nil {
		t.Fatal(err)
	}
	if err := a.Renew(t.Context(), 9, late.Add(2*streams.DefaultLimits().EventsAge)); !errors.Is(err, streams.ErrFenced) {
		t.Fatalf("after another's claim: %v, want ErrFenced", err)
	}
}
