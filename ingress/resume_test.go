package ingress_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

const grace = "30000"

// interrupted opens a resumable stream, gives it the first tokens, and drops its client. It returns the event that the
// client saw last.
func (h *harness) interrupted(t testing.TB, path, more string, tokens int32, headers ...string) (*run, string) {
	t.Helper()
	body := chatBody("a", `,"stream":true`+more)
	if path == completionPath {
		body = `{"model":"mock-1","prompt":"a","stream":true,"max_tokens":50` + more + `}`
	}
	s := h.open(t, path, body, append([]string{"X-Resume-Grace-Ms", grace}, headers...)...)
	r := h.next()
	r.tokens(1, 0, tokens)
	var last sse
	for last.text(t) != r.word(1, tokens-1) {
		last = s.next()
	}
	before := h.disconnects(t)
	s.res.Body.Close()
	eventually(t, "disconnect", func() bool { return h.disconnects(t) > before })
	return r, last.id
}

// disconnects is how many clients the ingress has seen go.
func (h *harness) disconnects(t testing.TB) int {
	return h.metric(t, "cadence_ingress_disconnects_total")
}

func (h *harness) resume(t testing.TB, method, path, last string, headers ...string) *stream {
	t.Helper()
	return follow(t, h.do(t, h.request(t, method, path, "", append([]string{"Last-Event-ID", last}, headers...)...)))
}

func TestResumeGivesExactlyTheRest(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	for _, path := range []string{chatPath, completionPath} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			for _, when := range []string{"before the end", "after the end"} {
				r, last := h.interrupted(t, path, `,"stream_options":{"include_usage":true}`, 4)
				end := func() {
					r.tokens(1, 4, 9)
					r.finish(1, 9, schema.FinishStop)
				}
				var s *stream
				if when == "before the end" {
					r.tokens(1, 4, 6) // while nobody is there
					s = h.resume(t, method, path, last)
					end()
				} else {
					end()
					h.flush(t)
					eventually(t, "the end", func() bool { return h.in.Stats().Kept > 0 })
					s = h.resume(t, method, path, last)
				}
				events, text := s.rest()
				if text != r.words(1, 4, 9) || s.err != nil {
					t.Fatalf("%s %s %s: %q, %v", method, path, when, text, s.err)
				}
				n := len(events)
				if events[n-1].data != "[DONE]" || !strings.Contains(events[n-2].data, `"completion_tokens":9`) || !strings.Contains(events[n-3].data, `"finish_reason":"stop"`) {
					t.Errorf("%s %s %s: end %+v", method, path, when, events[n-3:])
				}
				if s.res.Header.Get("X-Cadence-Request-Id") != string(r.ID) {
					t.Errorf("%+v", s.res.Header)
				}
				d := h.event(r.ID, schema.Delivered)
				if d.Reason != string(schema.OutcomeComplete) || len(h.of(r.ID, schema.CancelRequested)) != 0 {
					t.Errorf("%s %s %s: %+v", method, path, when, d.Event)
				}
				// The client may have lost any part of the end, too, and asks again from the beginning.
				events, text = h.resume(t, method, path, string(r.ID)+"/0").rest()
				if want := r.words(1, 0, 9); path == chatPath && text != want || path == completionPath && text != strings.TrimPrefix(want, r.word(1, 0)) {
					t.Errorf("%s %s %s, again: %q", method, path, when, text)
				}
				if tail, _ := h.resume(t, method, path, events[len(events)-2].id).rest(); len(tail) != 1 || tail[0].data != "[DONE]" {
					t.Errorf("after the last event: %+v", tail)
				}
				if got := len(h.of(r.ID, schema.Delivered)); got != 1 {
					t.Errorf("%d delivered events", got)
				}
			}
		}
	}
}

func TestWhoMayResume(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	r, last := h.interrupted(t, chatPath, "", 3, "X-Tenant", "acme")
	for name, try := range map[string]struct {
		path, last, tenant string
	}{
		"another tenant":  {chatPath, last, "beta"},
		"nobody":          {chatPath, last, ""},
		"another path":    {completionPath, last, "acme"},
		"another request": {chatPath, "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01/2", "acme"},
	} {
		h.post(t, try.path, "", "Last-Event-ID", try.last, "X-Tenant", try.tenant).want(t, 404, "not_resumable")
		_ = name
	}
	if e := h.post(t, chatPath, "", "Last-Event-ID", string(r.ID)+"/17", "X-Tenant", "acme").want(t, 400, "invalid_value"); e.Param != "Last-Event-ID" {
		t.Errorf("an event that did not happen: %+v", e)
	}
	s := h.resume(t, http.MethodPost, chatPath, last, "X-Tenant", "acme")
	r.finish(1, 3, schema.FinishStop)
	if events, _ := s.rest(); events[len(events)-1].data != "[DONE]" {
		t.Errorf("%+v", events)
	}
	// Without a grace there is nothing to come back to.
	plain := h.open(t, chatPath, chatBody("a", `,"stream":true`))
	h.post(t, chatPath, "", "Last-Event-ID", string(plain.id())+"/0").want(t, 404, "not_resumable")
	short(h.next())
	plain.rest()
}

// Whoever comes back last has the stream; the one before ends without [DONE].
func TestSecondReconnectionReplacesTheFirst(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	r, last := h.interrupted(t, chatPath, "", 3)
	first := h.resume(t, http.MethodPost, chatPath, last)
	r.tokens(1, 3, 4)
	first.next()
	second := h.resume(t, http.MethodPost, chatPath, last)
	if events, _ := first.rest(); first.err == nil || len(events) != 0 {
		t.Errorf("the first ended with %+v, %v", events, first.err)
	}
	r.tokens(1, 4, 5)
	r.finish(1, 5, schema.FinishStop)
	if _, text := second.rest(); text != r.words(1, 3, 5) {
		t.Errorf("the second: %q", text)
	}
	if len(h.of(r.ID, schema.CancelRequested)) != 0 {
		t.Error("cancelled")
	}
}

// Only when the grace is over is the request cancelled; then nobody can come back.
func TestGraceEnds(t *testing.T) {
	cfg := config()
	cfg.MaxGrace = 200 * time.Millisecond
	h := start(t, cfg)
	r, last := h.interrupted(t, chatPath, "", 3)
	begin := time.Now()
	if reason := streamstest.Receive(t, r.cancelled); reason != schema.CancelGrace || time.Since(begin) < cfg.MaxGrace/2 {
		t.Errorf("%s after %v", reason, time.Since(begin))
	}
	if e := h.event(r.ID, schema.CancelRequested); e.Reason != string(schema.CancelGrace) {
		t.Errorf("%+v", e.Event)
	}
	if d := h.event(r.ID, schema.Delivered); d.Reason != string(schema.OutcomeDisconnected) {
		t.Errorf("%+v", d.Event)
	}
	h.post(t, chatPath, "", "Last-Event-ID", last).want(t, 404, "not_resumable")
	// An answer that ended meanwhile is not cancelled, only forgotten.
	r, last = h.interrupted(t, chatPath, "", 3)
	r.finish(1, 3, schema.FinishStop)
	if d := h.event(r.ID, schema.Delivered); d.Reason != string(schema.OutcomeDisconnected) {
		t.Errorf("%+v", d.Event)
	}
	if len(h.of(r.ID, schema.CancelRequested)) != 0 {
		t.Error("a finished request was cancelled")
	}
	eventually(t, "nothing kept", func() bool { st := h.in.Stats(); return st.Kept == 0 && st.KeptBytes == 0 && st.Open == 0 })
	h.post(t, chatPath, "", "Last-Event-ID", last).want(t, 404, "not_resumable")
}

// Answers kept for their clients take no place, and bounded memory: the oldest go first.
func TestKeptAnswersAreBounded(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxOpen, cfg.ResumeBytes = 2, 4<<10
	h := start(t, cfg)
	var ids []string
	for i := range 8 {
		size := 1 << 10
		if i == 7 { // takes the room of several
			size = 3 << 10
		}
		s := h.open(t, chatPath, chatBody("a", `,"stream":true`), "X-Resume-Grace-Ms", grace)
		r := h.next()
		r.publish(&schema.Chunk{Attempt: 1, Index: 0, IDs: schema.Tokens{1}, Text: strings.Repeat("x", size)})
		r.finish(1, 1, schema.FinishStop)
		s.rest()
		eventually(t, "a free place", func() bool { return h.in.Stats().Open == 0 })
		ids = append(ids, string(s.id()))
	}
	if st := h.in.Stats(); st.KeptBytes > cfg.ResumeBytes || st.Kept == 0 {
		t.Errorf("%d kept, %d bytes", st.Kept, st.KeptBytes)
	}
	h.post(t, chatPath, "", "Last-Event-ID", ids[0]+"/0").want(t, 404, "not_resumable")
	if _, text := h.resume(t, http.MethodPost, chatPath, ids[7]+"/0").rest(); len(text) != 3<<10 {
		t.Errorf("the last: %d bytes", len(text))
	}
}
