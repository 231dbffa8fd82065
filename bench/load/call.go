package load

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/tidwall/gjson"
)

// maxBody bounds what is kept of an answer that is not a stream.
const maxBody = 16 << 20

// call is one request on its way. It lives on the stack of the goroutine that sends it.
type call struct {
	c        *Client
	req      *Request
	rec      *Record
	intended time.Time

	dropTimed bool // the connection's deadline is DropAfter, not the time-out
	dropped   bool // DropAfterEvents was reached
	reusable  bool // the answer was read to its end, and the connection stays open
	failed    bool // an error event came
	explained bool // the error has a reason of its own, not a code alone
	whole     bool // a JSON answer was read to its end
	last      time.Time
	end       time.Duration
	now       time.Time // when the bytes in hand came
	conn      *conn
}

// exchange sends the request and reads the answer.
func (k *call) exchange(ctx context.Context, n *conn) (err error) {
	k.conn = n
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { n.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // a closed connection needs no deadline
		defer func() {
			if !stop() {
				k.reusable = false // its deadline may be changed at any time
			}
		}()
	}
	if err := n.send(k.c, k.req); err != nil {
		// A server may answer and close before it has read everything: what it said counts more.
		if _, peek := n.r.Peek(1); peek != nil {
			return err
		}
	}
	h, err := readHead(n.r, k.c.idHeader)
	if err != nil {
		return err
	}
	k.now = time.Now()
	k.rec.Status, k.rec.RequestID, k.rec.RetryAfter = h.status, h.id, h.retryAfter
	k.rec.TTFB = k.now.Sub(k.intended)
	n.text, n.lastID = n.text[:0], n.lastID[:0]
	if h.status == 200 && h.sse {
		n.sse.reset()
		err = h.readBody(n.r, k.stream)
	} else {
		n.body = n.body[:0]
		err = h.readBody(n.r, func(b []byte) bool {
			n.body = append(n.body, b...)
			return len(n.body) <= maxBody
		})
		if err == nil {
			k.end = time.Since(k.intended)
			k.answer(n.body)
		}
	}
	if k.c.cfg.KeepText {
		k.rec.Text = string(n.text)
	}
	k.rec.LastEventID = string(n.lastID)
	k.reusable = err == nil && !h.close && (h.chunked || h.length >= 0) && n.r.Buffered() == 0
	return err
}

// stream takes a piece of an event stream.
func (k *call) stream(b []byte) bool {
	k.now = time.Now()
	return k.conn.sse.feed(b, k.event)
}

func (k *call) event(e event) bool {
	rec := k.rec
	if string(e.data) == "[DONE]" {
		rec.Done = true
		k.end = k.now.Sub(k.intended)
		return true
	}
	rec.Events++
	if len(e.id) > 0 {
		if rec.RequestID == "" {
			id, _, _ := bytes.Cut(e.id, []byte{'/'})
			rec.RequestID = string(id)
		}
		k.conn.lastID = append(k.conn.lastID[:0], e.id...)
		if k.c.cfg.KeepEventIDs {
			rec.EventIDs = append(rec.EventIDs, string(e.id))
		}
	}
	k.chunk(e.data)
	if rec.Events == k.req.DropAfterEvents {
		k.dropped = true
		return false
	}
	return true
}

// chunk takes the data of one event.
func (k *call) chunk(data []byte) {
	rec := k.rec
	if !gjson.ValidBytes(data) {
		k.failed = true
		rec.Err = "event is not JSON: " + clip(string(data), 200)
		return
	}
	choice := gjson.GetBytes(data, "choices.0")
	if !choice.Exists() {
		if e := gjson.GetBytes(data, "error"); e.Exists() {
			k.failed = true
			k.problem(e)
			return
		}
	}
	text := choice.Get("delta.content")
	if !text.Exists() {
		text = choice.Get("text")
	}
	if s := text.String(); s != "" {
		if rec.TextEvents == 0 {
			rec.TTFT = k.now.Sub(k.intended)
		} else {
			rec.Gaps = append(rec.Gaps, k.now.Sub(k.last))
		}
		rec.TextEvents++
		k.last = k.now
		k.conn.text = append(k.conn.text, s...)
	}
	if f := choice.Get("finish_reason").String(); f != "" {
		rec.Finish = f
	}
	if u := gjson.GetBytes(data, "usage"); u.IsObject() {
		k.usage(u)
	}
}

// answer takes a body that is no stream.
func (k *call) answer(body []byte) {
	if k.rec.Status != 200 {
		if e := gjson.GetBytes(body, "error"); e.IsObject() {
			k.problem(e)
		} else {
			k.rec.Err = clip(string(body), 200)
		}
		return
	}
	if k.whole = gjson.ValidBytes(body); !k.whole {
		k.rec.Err = "body is not JSON: " + clip(string(body), 200)
		return
	}
	choice := gjson.GetBytes(body, "choices.0")
	text := choice.Get("message.content")
	if !text.Exists() {
		text = choice.Get("text")
	}
	if s := text.String(); s != "" {
		k.rec.TTFT, k.rec.TextEvents = k.end, 1
		k.conn.text = append(k.conn.text, s...)
	}
	k.rec.Finish = choice.Get("finish_reason").String()
	if u := gjson.GetBytes(body, "usage"); u.IsObject() {
		k.usage(u)
	}
}

func (k *call) usage(u gjson.Result) {
	k.rec.Usage = &Usage{
		PromptTokens:     int(u.Get("prompt_tokens").Int()),
		CompletionTokens: int(u.Get("completion_tokens").Int()),
		TotalTokens:      int(u.Get("total_tokens").Int()),
		CachedTokens:     int(u.Get("prompt_tokens_details.cached_tokens").Int()),
	}
}

// problem takes an error object, OpenAI's with or without Cadence's reason.
func (k *call) problem(e gjson.Result) {
	k.rec.Reason = strings.Clone(e.Get("reason").String())
	if k.explained = k.rec.Reason != ""; !k.explained {
		k.rec.Reason = strings.Clone(e.Get("code").String())
	}
	k.rec.Err = clip(e.Get("message").String(), 200)
	if s := e.Get("retry_after").Int(); k.rec.RetryAfter == 0 && s > 0 && s < math.MaxInt32 {
		k.rec.RetryAfter = time.Duration(s) * time.Second
	}
}

// settle says how the request ended.
func (k *call) settle(ctx context.Context, err error) {
	rec := k.rec
	if err != nil && rec.Err == "" {
		rec.Err = err.Error()
	}
	var timeout net.Error
	timedOut := errors.As(err, &timeout) && timeout.Timeout()
	switch {
	case k.failed:
		rec.Outcome = StreamError
	case rec.Done, k.whole:
		rec.Outcome, rec.Err = OK, ""
	case k.dropped, err != nil && ctx.Err() != nil, timedOut && k.dropTimed:
		rec.Outcome, rec.Err = Disconnected, ""
	case timedOut:
		rec.Outcome = Timeout
	case rec.Status == 0:
		rec.Outcome = ConnectError
		if own(err) {
			rec.Reason = Generator
		}
	case rec.Reason != "" && (rec.Status == 429 || rec.Status == 503 && (k.explained || rec.RetryAfter > 0)):
		rec.Outcome = Refused
	case rec.Status != 200:
		rec.Outcome = HTTPError
	default:
		rec.Outcome = Truncated
	}
}

// own reports whether an error is of this machine's lack of files or of ports.
func own(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(strings.Clone(s), "�")
}
