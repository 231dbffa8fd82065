package soak

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/bench/enginecore"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/mock"
)

// Counts is what became of requests.
type Counts struct {
	Requests  int64 `json:"requests"`
	Finished  int64 `json:"finished"`
	Cancelled int64 `json:"cancelled"`
	Replaced  int64 `json:"replaced"` // attempts that a newer one took over from
	Tokens    int64 `json:"tokens"`   // received of newest attempts
	Full      int64 `json:"full"`     // verdicts
	Late      int64 `json:"late_chunks"`
}

// load is the requests that are under way and what they must say.
type load struct {
	rig    *enginecore.Rig
	engine *engine
	source *source
	ended  chan struct{} // room for one: a request has ended, or an attempt is to be dispatched

	mu      sync.Mutex
	live    map[schema.RequestID]*request
	again   []*request                  // whose newest attempt the worker does not have
	gone    map[schema.RequestID]uint32 // last attempt of those that ended since the last pause
	counts  Counts
	wrong   int
	samples []string // of what was wrong, the first few
}

func newLoad(rig *enginecore.Rig, e *engine, seed uint64) *load {
	info := e.Info()
	return &load{
		rig: rig, engine: e, source: newSource(seed, info.Vocab, info.Model), ended: make(chan struct{}, 1),
		live: map[schema.RequestID]*request{}, gone: map[schema.RequestID]uint32{},
	}
}

func (l *load) poke() {
	select {
	case l.ended <- struct{}{}:
	default:
	}
}

// complain notes a wrong answer. The caller holds l.mu.
func (l *load) complain(c *schema.Chunk, format string, args ...any) {
	l.wrong++
	if len(l.samples) < 5 {
		l.samples = append(l.samples, fmt.Sprintf("request %s, attempt %d: ", c.Request, c.Attempt)+fmt.Sprintf(format, args...))
	}
}

// chunk checks what the worker says. It runs on the client's goroutine.
func (l *load) chunk(c *schema.Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.live[c.Request]
	if r == nil {
		if last, ok := l.gone[c.Request]; !ok || c.Attempt >= last {
			l.complain(c, "a chunk at %d after its end", c.Index)
		}
		l.counts.Late++
		return
	}
	if c.Attempt < r.attempt {
		l.counts.Late++ // sealed
		return
	}
	if c.Attempt > r.attempt {
		l.complain(c, "an attempt that nobody asked for, after %d", r.attempt)
		return
	}
	l.tokens(r, c)
	switch {
	case c.Error != nil && (c.Error.Code != schema.FailedCancelled || !r.cancelled):
		l.complain(c, "it failed: %s: %s", c.Error.Code, c.Error.Message)
		l.end(r)
	case c.Error != nil:
		l.counts.Cancelled++
		l.end(r)
	case c.Finish != nil:
		l.finish(r, c)
		l.counts.Finished++
		l.end(r)
	default:
		l.disturb(r)
	}
}

// tokens checks the tokens of a chunk.
func (l *load) tokens(r *request, c *schema.Chunk) {
	if want := len(r.resume) + len(r.got); int(c.Index) != want && (len(c.IDs) > 0 || c.Error == nil) {
		l.complain(c, "it goes on at token %d after %d", c.Index, want)
	}
	for _, id := range c.IDs {
		if l.engine.mock != nil {
			want := mock.Next(*l.engine.mock, r.req.Sampling.Seed, r.attempt, r.req.IgnoreEOS, r.req.Prompt, r.resume, r.got)
			if id != want {
				l.complain(c, "token %d is %d, not %d", len(r.resume)+len(r.got), id, want)
			}
		}
		r.got = append(r.got, id)
	}
	r.text = append(r.text, c.Text...)
	l.counts.Tokens += int64(len(c.IDs))
	if n := len(r.resume) + len(r.got); n > int(r.req.MaxTokens) {
		l.complain(c, "%d tokens, at most %d were wanted", n, r.req.MaxTokens)
	}
}

// finish checks the end of an answer.
func (l *load) finish(r *request, c *schema.Chunk) {
	n := len(r.resume) + len(r.got)
	if int(c.Finish.OutputTokens) != n || int(c.Finish.PromptTokens) != len(r.req.Prompt) {
		l.complain(c, "it tells of %d prompt and %d output tokens, not %d and %d", c.Finish.PromptTokens, c.Finish.OutputTokens, len(r.req.Prompt), n)
	}
	last := int32(-1)
	if len(r.got) > 0 {
		last = r.got[len(r.got)-1]
	} else if len(r.resume) > 0 {
		last = r.resume[len(r.resume)-1]
	}
	stopped := last >= 0 && !r.req.IgnoreEOS && l.engine.EOG(last)
	switch {
	case c.Finish.Reason == schema.FinishLength && n != int(r.req.MaxTokens):
		l.complain(c, "it ended for its length after %d of %d tokens", n, r.req.MaxTokens)
	case c.Finish.Reason == schema.FinishStop && !stopped:
		l.complain(c, "it stopped by itself with token %d", last)
	}
	if l.engine.mock == nil {
		return
	}
	var text []byte
	for _, id := range r.got {
		var err error
		if text, err = (mock.Tokenizer{}).AppendPiece(text, id, false); err != nil {
			l.complain(c, "token %d: %v", id, err)
		}
	}
	if string(text) != string(r.text) {
		l.complain(c, "its text is %q, not %q", r.text, text)
	}
}

// end forgets a request.
func (l *load) end(r *request) {
	delete(l.live, r.req.ID)
	l.gone[r.req.ID] = r.attempt
	l.poke()
}

// disturb cancels or replaces a request whose moment has come.
func (l *load) disturb(r *request) {
	switch n := len(r.resume) + len(r.got); {
	case r.cancelAt >= 0 && n >= r.cancelAt && !r.cancelled:
		r.cancelled = true
		if err := l.rig.Client.PublishCancel(&schema.Cancel{Request: r.req.ID, Reason: schema.CancelDisconnect}); err != nil {
			l.wrong++
			l.samples = append(l.samples, err.Error())
		}
	case r.replaceAt >= 0 && n >= r.replaceAt && r.sent:
		r.replace()
		l.counts.Replaced++
		l.again = append(l.again, r)
		l.poke()
	}
}

// most is how many requests a dispatch brings.
const most = 8

// run offers as much as the worker takes, until the time is over. It returns the first error of the wire.
func (l *load) run(ctx context.Context, until <-chan time.Time) error {
	return l.offer(ctx, until, true)
}

// rest lets everything that is under way end, within the context's time.
func (l *load) rest(ctx context.Context) error {
	if err := l.offer(ctx, nil, false); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.gone)
	return nil
}

// offer dispatches attempts. Without fresh requests it returns when none is left.
func (l *load) offer(ctx context.Context, until <-chan time.Time, fresh bool) error {
	var next []*request
	retry := time.NewTicker(20 * time.Millisecond) // an answer may end before the worker has given its room back
	defer retry.Stop()
	for {
		l.mu.Lock()
		next = append(l.again, next...)
		l.again = nil
		left := len(l.live)
		l.mu.Unlock()
		for fresh && len(next) < most {
			r, err := l.source.next()
			if err != nil {
				return err
			}
			l.mu.Lock()
			l.live[r.req.ID] = r
			l.counts.Requests++
			l.mu.Unlock()
			next = append(next, r)
		}
		if !fresh && left == 0 && len(next) == 0 {
			return nil
		}
		took := 0
		if len(next) > 0 {
			rest, err := l.dispatch(ctx, next)
			if err != nil {
				return err
			}
			took = len(next) - len(rest)
			next = rest
		}
		select {
		case <-until:
			l.mu.Lock() // who was not taken comes with the next stretch
			l.again = append(l.again, next...)
			l.mu.Unlock()
			return nil
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			return fmt.Errorf("soak: %d requests have no end: %w", len(l.live), ctx.Err())
		case <-l.rig.Ended():
			return enginecore.ErrEnded
		default:
		}
		if took > 0 && fresh {
			continue
		}
		select {
		case <-l.ended:
		case <-retry.C:
		case <-ctx.Done():
		case <-l.rig.Ended():
		case <-until:
			l.mu.Lock()
			l.again = append(l.again, next...)
			l.mu.Unlock()
			return nil
		}
	}
}

// dispatch offers attempts and returns those that the worker had no room for.
func (l *load) dispatch(ctx context.Context, next []*request) (full []*request, err error) {
	items := make([]schema.DispatchItem, len(next))
	l.mu.Lock()
	for i, r := range next {
		items[i] = r.item()
	}
	l.mu.Unlock()
	verdicts, err := l.rig.Dispatch(ctx, items)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, v := range verdicts {
		r := next[i]
		switch v {
		case schema.VerdictAccepted:
			r.sent = true
			if r.cancelAt == 0 && l.live[r.req.ID] == r {
				l.disturb(r)
			}
		case schema.VerdictFull:
			l.counts.Full++
			full = append(full, r)
		default:
			l.wrong++
			l.samples = append(l.samples, fmt.Sprintf("request %s, attempt %d: verdict %s", r.req.ID, r.attempt, v))
			l.end(r)
		}
	}
	return full, nil
}
