package ingress

import (
	"sync"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
)

// call is what is known of a request before it is relayed. It is not changed after it was published.
type call struct {
	id       schema.RequestID
	clientID string // the client's X-Request-Id, cleaned
	tenant   string
	kind     schema.Kind
	asked    schema.Class // by the client
	class    schema.Class // that it is served as: guaranteed only if that was promised
	arrived  time.Time
	deadline time.Duration // from arrival; 0 is none
	ttft     time.Duration // objective of the first token, from arrival; 0 is none
	late     schema.OnDeadline
	canary   bool // no rule refuses it
	said     verdict
	grace    time.Duration
	model    string // as the event log knows it
	pool     string
	stream   bool
	prompt   int32 // tokens
	output   int32 // tokens at most
}

// left is what is left of an objective; 0 is none, and one that has passed is the shortest there is.
func (c *call) left(objective time.Duration, now time.Time) time.Duration {
	if objective == 0 {
		return 0
	}
	return max(1, objective-now.Sub(c.arrived))
}

// eventBytes is what one event counts for beside its text, against a stream's bounds.
const eventBytes = 64

// answer is one request whose tokens are relayed here. Its mutex guards what stands below it.
type answer struct {
	call
	head         openai.Head
	includeUsage bool
	speller      Speller // nil: no log-probabilities are wanted

	mu         sync.Mutex
	transcript // its texts are those kept: see kept

	// body is what writes the answer to a client now; nil: nobody.
	body *body
	// kept is the number of the first text in texts (from 0). Texts that nobody can ask for again are dropped when
	// they are taken.
	kept int64
	// unread counts the bytes of texts that body has not taken, size those of all kept texts.
	unread, size int
	place        place
	points       int // code points that the tokens' pieces have begun: see measure

	firstToken time.Duration // since arrival; 0: none yet
	firstWrite time.Duration // until the first text was written to a client
	until      time.Time     // end of grace, while detached or kept after its end
	retained   bool          // ended, without a place
	closed     bool          // nothing is taken or attached any more
	cancelled  bool
	reported   bool          // delivered is emitted
	cause      *openai.Error // what the client is told of failed, if not what its code says

	quiet    time.Time     // when the last chunk came, or TOKENS was last looked into for want of one
	patience time.Duration // how long it may be quiet until that is done
	looked   time.Time     // when TOKENS was last looked into for any reason
	filling  bool          // it is being looked into
	gapSince time.Time     // zero: there is no gap
}

// offset is the number of the event of the first text: chats have one before it, for the role.
func (a *answer) offset() int64 {
	if a.kind == schema.KindChat {
		return 1
	}
	return 0
}

// next is the number of the event of the next text to come. The caller holds mu.
func (a *answer) next() int64 { return a.offset() + a.kept + int64(len(a.texts)) }

func (a *answer) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// resumable reports whether a client that goes may come back. The caller needs no lock.
func (a *answer) resumable() bool { return a.grace > 0 }

// wake makes the body look again. The caller holds mu.
func (a *answer) wake() {
	if a.body == nil {
		return
	}
	select {
	case a.body.woken <- struct{}{}:
	default:
	}
}

// attach makes b the answer's body, from event number `from` on; one that was there ends. It returns an error for the
// client if that event does not exist, or no longer.
func (a *answer) attach(b *body, from int64) *openai.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errNotResumable
	}
	last := a.next() - 1
	if a.ended() {
		last = a.lastEvent()
	}
	if from > last+1 {
		return openai.InvalidParameter("Last-Event-ID", "the stream has not come to this event yet")
	}
	if a.kept > 0 && from-a.offset() < a.kept {
		return errNotResumable
	}
	a.wake() // the old one, which then finds that it is not the body any more
	a.body, b.a, b.from = b, a, from
	a.until = time.Time{}
	a.unread = 0
	for i := max(0, from-a.offset()-a.kept); i < int64(len(a.texts)); i++ {
		a.unread += a.texts[i].bytes()
	}
	return nil
}

// lastEvent is the number of the last event of an answer that has ended. The caller holds mu.
func (a *answer) lastEvent() int64 {
	n := a.next() // finish or error
	if a.failed == nil && a.includeUsage {
		n++
	}
	return n
}

// usage are the token counts of a finished answer. The caller holds mu.
func (a *answer) usage() openai.Usage {
	f := a.finish
	return openai.Usage{PromptTokens: int(f.PromptTokens), CompletionTokens: int(f.OutputTokens), CachedTokens: int(f.CachedTokens)}
}
