package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamstest.IgnoreAckWatcher()) }

func id(n int) schema.RequestID {
	return schema.RequestID(fmt.Sprintf("01920000-0000-7000-8000-%012d", n))
}

func publish(t *testing.T, c *streams.Client, pool string, n int, change func(*schema.Request)) {
	t.Helper()
	r := &schema.Request{ID: id(n), Pool: pool, Model: "m", Tenant: "acme", Ingress: "in", Kind: schema.KindChat, Received: 1, Prompt: schema.Tokens{int32(n), 5, 6}, MaxTokens: 40}
	change(r)
	body, err := schema.Encode(r)
	if err == nil {
		_, err = c.PublishRequest(t.Context(), pool, r.ID, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What was asked of a pool comes again: its token ids, its caps, and answers as long as they became.
func TestReplay(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	if _, err := Open(t.Context(), c, "p"); !errors.Is(err, ErrEmpty) {
		t.Errorf("of nothing: %v", err)
	}
	publish(t, c, "other", 1, func(*schema.Request) {})
	publish(t, c, "p", 2, func(*schema.Request) {})
	publish(t, c, "p", 3, func(r *schema.Request) { r.Class, r.Kind, r.Tenant = schema.Guaranteed, schema.KindCompletion, "b" })
	if _, err := c.PublishRequest(t.Context(), "p", id(4), []byte("?")); err != nil {
		t.Fatal(err)
	}
	publish(t, c, "p", 5, func(r *schema.Request) { r.MaxTokens = 7 })
	publish(t, c, "other", 6, func(*schema.Request) {})

	want := []workload.Request{
		{Index: 0, Prompt: []int32{2, 5, 6}, System: -1, Cap: 40, Output: 40, Tenant: "acme", Kind: "chat"},
		{Index: 1, Prompt: []int32{3, 5, 6}, System: -1, Cap: 40, Output: 40, Tenant: "b", Class: "guaranteed", Kind: "completion"},
		{Index: 2, Prompt: []int32{5, 5, 6}, System: -1, Cap: 7, Output: 7, Tenant: "acme", Kind: "chat"},
	}
	check := func(estimated int) {
		t.Helper()
		s, err := Open(t.Context(), c, "p")
		if err != nil {
			t.Fatal(err)
		}
		times := slices.Collect(workload.Timed(s).Arrivals())
		if len(times) != 3 || times[0] != 0 || !slices.IsSorted(times) || times[2] > time.Hour || s.Name() != "requests:p" || s.SLOs() != nil {
			t.Errorf("%v, %s", times, s.Name())
		}
		for i := range 6 {
			w := want[i%3]
			w.Index = i
			if got := s.Request(i); !reflect.DeepEqual(got, w) {
				t.Errorf("%+v, want %+v", got, w)
			}
		}
		s.Request(0).Prompt[0] = 99 // it is the caller's
		if s.Request(0).Prompt[0] != 2 {
			t.Error("prompts are shared")
		}
		var a about
		if err := json.Unmarshal(s.Describe(), &a); err != nil || a.Rows != 3 || a.Estimated != estimated || a.Unreadable != 1 || a.FirstSeq != 2 || a.LastSeq != 5 || a.Begin.IsZero() {
			t.Errorf("%+v, %v", a, err)
		}
	}
	check(3)
	for n, tokens := range map[int]int32{2: 12, 5: 7, 1: 3} {
		e := &schema.Event{Type: schema.Finished, Time: 1, Source: "w", Request: id(n), Attempt: 1, Reason: "length", OutputTokens: tokens}
		if _, err := c.PublishEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	want[0].Output = 12
	check(1)
}

// What retention drops while it is read does not come any more, and whoever waits for it is told.
func TestDroppedWhileRead(t *testing.T) {
	c := streamstest.Start(t).Client(t)
	publish(t, c, "p", 1, func(*schema.Request) {})
	read := func(ctx context.Context) error {
		return collect(ctx, c, streams.Requests, 1, func(func()) (*streams.Tail, error) {
			return c.TailRequests(t.Context(), "p", 0, func(streams.StoredRequest) {})
		})
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := read(stopped); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "reading REQUESTS up to 1") {
		t.Error(err)
	}
	s, err := c.JetStream().Stream(t.Context(), streams.Requests)
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := read(t.Context()); !errors.Is(err, streams.ErrGone) {
		t.Error(err)
	}
}
