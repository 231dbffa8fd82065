package ingress_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

// sse is one server-sent event.
type sse struct {
	id, data string
	comment  string
}

// text is the content of a chunk of either endpoint.
func (e sse) text(t testing.TB) string {
	t.Helper()
	var v struct {
		Choices []struct {
			Text  string
			Delta struct{ Content string }
		}
	}
	if e.data == "" || e.data == "[DONE]" {
		return ""
	}
	if err := json.Unmarshal([]byte(e.data), &v); err != nil {
		t.Fatalf("event %q: %v", e.data, err)
	}
	if len(v.Choices) == 0 {
		return ""
	}
	return v.Choices[0].Text + v.Choices[0].Delta.Content
}

// stream reads server-sent events as they come.
type stream struct {
	t      testing.TB
	res    *http.Response
	events chan sse
	err    error // after events is closed
}

func (h *harness) open(t testing.TB, path, body string, headers ...string) *stream {
	t.Helper()
	return follow(t, h.do(t, h.request(t, http.MethodPost, path, body, headers...)))
}

func follow(t testing.TB, res *http.Response) *stream {
	t.Helper()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", res.StatusCode, readAll(t, res).body)
	}
	s := &stream{t: t, res: res, events: make(chan sse, 1<<16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.events)
		s.err = parseSSE(res.Body, func(e sse) { s.events <- e })
	}()
	t.Cleanup(func() { res.Body.Close(); <-done })
	return s
}

func parseSSE(r io.Reader, emit func(sse)) error {
	rd := bufio.NewReader(r)
	var e sse
	for {
		line, err := rd.ReadString('\n')
		if err == io.EOF && line == "" && e == (sse{}) {
			return nil
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "":
			emit(e)
			e = sse{}
		case strings.HasPrefix(line, ": "):
			e.comment = line[2:]
		case strings.HasPrefix(line, "id: "):
			e.id = line[4:]
		case strings.HasPrefix(line, "data: "):
			e.data = line[6:]
		default:
			return fmt.Errorf("line %q", line)
		}
	}
}

// next returns the next event that is no comment.
func (s *stream) next() sse {
	s.t.Helper()
	for {
		if e := streamstest.Receive(s.t, s.events); e.comment == "" {
			return e
		}
	}
}

// rest returns the remaining events that are no comments, and their text.
func (s *stream) rest() (events []sse, text string) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				return events, text
			}
			if e.comment == "" {
				events = append(events, e)
				text += e.text(s.t)
			}
		case <-deadline:
			s.t.Fatalf("stream not ended within 20s, after %q", text)
		}
	}
}

// id is the request's own.
func (s *stream) id() schema.RequestID {
	return schema.RequestID(s.res.Header.Get("X-Cadence-Request-Id"))
}
