package ingress_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

func TestDrainOrder(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	beats := make(chan *schema.IngressState, 1024)
	sub, err := h.client.SubscribeIngressStates(func(s *schema.IngressState) { beats <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if b := streamstest.Receive(t, beats); b.Ingress != h.in.ID() || b.Draining {
		t.Errorf("heartbeat %+v", b)
	}
	s := h.open(t, chatPath, chatBody("a", `,"stream":true`))
	r := h.next()
	r.tokens(1, 0, 2)
	whole := make(chan reply, 1)
	go func() { whole <- h.post(t, chatPath, chatBody("b", "")) }()
	queued := h.next()

	h.stop()
	eventually(t, "not ready", func() bool { return h.get(t, "/ready").StatusCode == 503 })
	if body := h.get(t, "/ready").body; !strings.Contains(body, `"reason":"draining"`) {
		t.Errorf("ready: %s", body)
	}
	for b := (&schema.IngressState{}); !b.Draining; {
		b = streamstest.Receive(t, beats)
	}
	if res := h.get(t, "/health"); res.StatusCode != 200 {
		t.Errorf("health: %d", res.StatusCode)
	}
	// On a new connection, too: the listener is open.
	c := h.raw(t, chatPath, chatBody("late", ""))
	c.Close()
	late := h.post(t, chatPath, chatBody("late", ""))
	if late.want(t, 503, "draining"); late.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %+v", late.Header)
	}
	if e := h.event(schema.RequestID(late.Header.Get("X-Cadence-Request-Id")), schema.Refused); e.Reason != string(schema.RefusedDraining) {
		t.Errorf("%+v", e.Event)
	}
	select {
	case err := <-h.result:
		t.Fatalf("stopped with open streams: %v", err)
	default:
	}
	// What runs goes on to its end.
	r.tokens(1, 2, 4)
	r.finish(1, 4, schema.FinishStop)
	if events, text := s.rest(); text != r.words(1, 0, 4) || events[len(events)-1].data != "[DONE]" {
		t.Errorf("%q, %+v", text, events)
	}
	select {
	case err := <-h.result:
		t.Fatalf("stopped with a queued request: %v", err)
	default:
	}
	short(queued)
	if res := streamstest.Receive(t, whole); res.StatusCode != http.StatusOK {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	if err := streamstest.Receive(t, h.result); err != nil {
		t.Fatal(err)
	}
	h.result <- nil // for the harness
	// Everything was told before the end.
	for _, id := range []schema.RequestID{r.ID, queued.ID} {
		if d := h.event(id, schema.Delivered); d.Reason != string(schema.OutcomeComplete) {
			t.Errorf("%+v", d.Event)
		}
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://")); err == nil {
		c.Close()
		t.Error("the listener is still open")
	}
}

// What does not end within the limit is cut, told so, and cancelled.
func TestDrainLimit(t *testing.T) {
	cfg := config()
	cfg.DrainTimeout = 100 * time.Millisecond
	h := start(t, cfg)
	s := h.open(t, chatPath, chatBody("a", `,"stream":true`))
	r := h.next()
	r.tokens(1, 0, 2)
	whole := make(chan reply, 1)
	go func() { whole <- h.post(t, chatPath, chatBody("b", "")) }()
	queued := h.next()
	gone, _ := h.interrupted(t, chatPath, "", 2)

	h.stop()
	events, text := s.rest()
	if end := events[len(events)-1]; text != r.words(1, 0, 2) || !strings.Contains(end.data, `"code":"draining"`) || s.err != nil {
		t.Errorf("%q, %+v, %v", text, end, s.err)
	}
	res := streamstest.Receive(t, whole)
	if res.want(t, 503, "draining"); res.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %+v", res.Header)
	}
	for q, outcome := range map[*run]schema.Outcome{r: schema.OutcomeError, queued: schema.OutcomeError, gone: schema.OutcomeDisconnected} {
		if reason := streamstest.Receive(t, q.cancelled); reason != schema.CancelDrain {
			t.Errorf("cancelled: %s", reason)
		}
		if e := h.event(q.ID, schema.CancelRequested); e.Reason != string(schema.CancelDrain) {
			t.Errorf("%+v", e.Event)
		}
		if d := h.event(q.ID, schema.Delivered); d.Reason != string(outcome) {
			t.Errorf("%+v", d.Event)
		}
	}
	if err := streamstest.Receive(t, h.result); err != nil {
		t.Fatal(err)
	}
	h.result <- nil
}
