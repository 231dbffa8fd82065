package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// errDropped is why an exchange that nobody wants any more is cancelled.
var errDropped = errors.New("openai: the sequence was dropped")

// stream is a sequence's exchange with the server.
type stream struct {
	max       int // tokens to generate
	prompt    int // tokens of the request's prompt
	resumed   int // tokens that earlier attempts generated, sent after the prompt
	ignoreEOS bool
	eog       int32 // what the end is told with
	stop      context.CancelCauseFunc

	mu     sync.Mutex
	ids    []int32
	given  int // of ids, and the end
	ended  bool
	fault  error // why it ended, if it failed
	finish schema.FinishReason
	usage  *usage
}

// take gives the engine loop the next row, or reports that there is none yet.
//
// The token that fills max_tokens is held until the server has said how it ended, so that its counts are known, and so
// that an answer cut right there is not taken for a whole one.
func (s *stream) take(row *batch.Row) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := s.ended && s.fault == nil
	switch {
	case s.given < len(s.ids) && (s.given < s.max-1 || whole):
		row.Token = s.ids[s.given]
	case s.fault != nil:
		row.Err = s.fault
		return true
	case whole:
		row.Token, row.Stop = s.eog, true
	default:
		return false
	}
	s.given++
	return true
}

// counts returns what the server counted in an answer that has ended well.
func (s *stream) counts() (worker.Usage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended || s.fault != nil {
		return worker.Usage{}, false
	}
	u := worker.Usage{PromptTokens: s.prompt, OutputTokens: s.given, Finish: s.finish}
	if s.given < len(s.ids) {
		u.Finish = schema.FinishLength // there was more than max_tokens, as we count
	}
	if s.usage.plausible() {
		u.PromptTokens, u.OutputTokens = max(0, s.usage.Prompt-s.resumed), s.usage.Completion
		u.CachedTokens = min(max(0, s.usage.Details.Cached), u.PromptTokens)
	}
	return u, true
}

// fail ends a stream.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.fault = true, err
}

// exchange is the work of a stream's own goroutine.
type exchange struct {
	b      *Backend
	s      *stream
	spell  speller
	watch  *time.Timer // cancels ctx
	fresh  []int32     // ids of an event
	tokens int         // so far
	delta  delta
}

// run asks the server and reads what it says until the end. Then it tells the stream how it ended.
func (b *Backend) run(ctx context.Context, s *stream, body []byte) {
	defer b.running.Done()
	defer s.stop(errDropped)
	select {
	case b.permits <- struct{}{}:
	case <-ctx.Done():
		return
	}
	x := exchange{b: b, s: s, spell: speller{tokenizer: b.cfg.Tokenizer, eog: s.ignoreEOS}}
	f := x.ask(ctx, body)
	<-b.permits
	if f == nil || errors.Is(context.Cause(ctx), errDropped) {
		return
	}
	f.Upstream, f.Tokens = b.name, x.tokens
	if f.gone() && b.check(ctx) != nil { // then the worker gives up all of its requests, if it gets the time
		hold := time.NewTimer(b.cfg.Hold)
		defer hold.Stop()
		select {
		case <-ctx.Done():
			return
		case <-hold.C:
		}
	}
	s.fail(f)
	b.poke()
}

// ask is one exchange. It returns nil if the stream has ended well.
func (x *exchange) ask(ctx context.Context, body []byte) *Fault {
	cfg := &x.b.cfg
	x.watch = time.AfterFunc(cfg.FirstToken, func() { x.s.stop(ErrSlowStart) })
	defer func() { x.watch.Stop() }()
	req, err := x.b.request(ctx, http.MethodPost, cfg.Dialect.path(), bytes.NewReader(body))
	if err != nil {
		return &Fault{Err: fmt.Errorf("%w: %w", ErrUnreachable, err)}
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := x.b.client.Do(req)
	if err != nil {
		return &Fault{Err: x.why(ctx, ErrUnreachable, err)}
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refused(res)
	}
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return &Fault{Status: res.StatusCode, Err: fmt.Errorf("%w: its type is %q", ErrProtocol, words(kind))}
	}
	if err := x.read(ctx, newEventReader(res.Body)); err != nil {
		return &Fault{Status: res.StatusCode, Err: err}
	}
	return nil
}

// read reads the events of a stream to the end.
func (x *exchange) read(ctx context.Context, events *eventReader) error {
	for {
		e, err := events.next()
		if err == nil {
			x.delta, err = x.b.cfg.Dialect.read(&e)
		} else if !errors.Is(err, ErrProtocol) {
			return x.cut(ctx, err)
		}
		if err != nil {
			return err
		}
		if err := x.take(); err != nil {
			return err
		}
		if x.delta.done {
			return x.end(nil)
		}
	}
}

// take passes on what an event said.
func (x *exchange) take() error {
	d, s := &x.delta, x.s
	var err error
	if x.fresh, err = x.spell.add(x.fresh[:0], d.text, d.ids); err == nil && d.finish != "" {
		x.fresh, err = x.spell.end(x.fresh)
	}
	if len(d.text) > 0 || len(d.ids) > 0 {
		x.watch.Reset(x.b.cfg.Stall)
	}
	s.mu.Lock()
	s.ids = append(s.ids, x.fresh...)
	x.tokens = len(s.ids)
	if d.finish != "" {
		s.finish = d.finish
	}
	if d.usage != nil {
		s.usage = d.usage
	}
	s.mu.Unlock()
	if len(x.fresh) > 0 {
		x.b.poke()
	}
	if err == nil && x.tokens > 2*s.max+16 {
		err = fmt.Errorf("%w: more than the max_tokens of %d", ErrProtocol, s.max)
	}
	return err
}

// end is reached at the server's own end: [DONE], its last event, or the end of a body after a finish_reason. cause is
// why a body ended.
func (x *exchange) end(cause error) error {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	said := len(s.ids) > 0 || (s.finish == schema.FinishStop && s.usage != nil && s.usage.Completion > 0)
	switch {
	case !said && cause == nil:
		return ErrEmpty
	case s.finish == "":
		return errors.Join(ErrCut, cause)
	case s.finish == schema.FinishStop && s.ignoreEOS && len(s.ids) < s.max:
		return ErrEnd
	}
	s.ended = true
	x.b.poke()
	return nil
}

// cut is reached when a body ended, well or not.
func (x *exchange) cut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return x.why(ctx, ErrCut, cause)
	}
	x.s.mu.Lock()
	whole := x.s.finish != ""
	x.s.mu.Unlock()
	if whole { // what is missing is the count, or only [DONE]
		return x.end(nil)
	}
	if errors.Is(err, io.EOF) {
		return ErrCut
	}
	return fmt.Errorf("%w: %w", ErrCut, err)
}

// why is what an exchange failed of: a time-out of ours, or otherwise.
func (x *exchange) why(ctx context.Context, otherwise, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrSlowStart) && x.tokens > 0:
		return fmt.Errorf("%w for %v", ErrStalled, x.b.cfg.Stall)
	case errors.Is(cause, ErrSlowStart):
		return fmt.Errorf("%w (%v)", ErrSlowStart, x.b.cfg.FirstToken)
	default:
		return fmt.Errorf("%w: %w", otherwise, err)
	}
}

// refused reads a response that is no stream.
func refused(res *http.Response) *Fault {
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	f := &Fault{Status: res.StatusCode, Err: ErrStatus, Message: words(message(body)), RetryAfter: retryAfter(res.Header.Get("Retry-After"))}
	if err != nil {
		f.Err = fmt.Errorf("%w: %w", ErrStatus, err)
	}
	return f
}

// retryAfter reads the header's form in seconds, or 0. Its other form, a date, would need the server's clock.
func retryAfter(value string) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
