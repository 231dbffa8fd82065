package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// ledger remembers which of the last requests in REQUESTS were taken, so that reading them again takes none twice. (A
// fold forgets by id what ended long ago, however little this pool had to do since.)
type ledger struct {
	last [reread]struct {
		seq uint64
		id  schema.RequestID
	}
	upTo uint64 // every earlier one was taken too: an epoch says so
}

func (l *ledger) add(seq uint64, id schema.RequestID) {
	if e := &l.last[seq%reread]; seq > e.seq {
		e.seq, e.id = seq, id
	}
}

// has reports whether a request was added; it must not lie reread or more before the last one that was.
func (l *ledger) has(seq uint64, id schema.RequestID) bool {
	e := &l.last[seq%reread]
	return e.seq == seq && e.id == id
}

// fold reads EVENTS from its beginning to the claim, and the bodies of what is unfinished there.
func (s *Scheduler) fold(ctx context.Context, epoch uint64, taken *ledger) (core.Restored, error) {
	x := core.Restored{State: schema.NewState(), Epoch: epoch, Sealed: map[schema.RequestID][]uint32{}}
	done := make(chan struct{})
	caught := false
	handle := func(e *schema.Stored, _ uint64) {
		if caught {
			return // the live reader will bring it
		}
		x.State.Apply(e)
		switch {
		case e.RequestSeq == 0 || e.Pool != s.cfg.Pool:
		case e.Type == schema.Epoch:
			taken.upTo = max(taken.upTo, e.RequestSeq)
		default: // accepted, or failed because it could not be read
			taken.add(e.RequestSeq, e.Request)
		}
		switch {
		case e.Type == schema.Sealed:
			x.Sealed[e.Request] = append(x.Sealed[e.Request], e.Attempt)
		case e.Type.Terminal() && x.State.Settled(e.Request):
			delete(x.Sealed, e.Request)
		}
		if caught = e.Seq >= epoch; caught {
			close(done)
		}
	}
	var tail *streams.Tail
	err := s.retry(ctx, func() (err error) {
		tail, _, err = s.client.TailEvents(ctx, 0, core.FoldTypes, handle, s.badEvent)
		return err
	})
	if err != nil {
		return x, err
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	tail.Stop()
	if ctx.Err() != nil {
		return x, ctx.Err()
	}
	x.Requests, err = s.bodies(ctx, x.State)
	return x, err
}

// bodies reads the pool's unfinished requests.
func (s *Scheduler) bodies(ctx context.Context, st *schema.State) (map[schema.RequestID]core.Request, error) {
	wanted := make(chan *schema.RequestState)
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		out    = map[schema.RequestID]core.Request{}
		failed error
	)
	for range askers {
		wg.Go(func() {
			for r := range wanted {
				q, err := s.body(ctx, r)
				mu.Lock()
				switch {
				case err == nil:
					out[r.ID] = q
				case errors.Is(err, streams.ErrUnavailable):
					failed = err
				default:
					s.log.Error("request is not readable any more", "request_id", r.ID, "request_seq", r.RequestSeq, "error", err)
				}
				mu.Unlock()
			}
		})
	}
	for _, r := range st.Requests {
		if r.Phase != schema.PhaseUnknown && r.Pool == s.cfg.Pool {
			wanted <- r
		}
	}
	close(wanted)
	wg.Wait()
	return out, failed
}

func (s *Scheduler) body(ctx context.Context, r *schema.RequestState) (core.Request, error) {
	var m streams.StoredRequest
	err := s.retry(ctx, func() (err error) {
		m, err = s.client.Request(ctx, r.RequestSeq)
		return err
	})
	if err != nil {
		return core.Request{}, err
	}
	q, err := decode(m)
	if err == nil && q.ID != r.ID {
		err = schema.ErrInvalid // REQUESTS was recreated
	}
	return q, err
}

// decode reads a message of REQUESTS. Decoding the prompt with it costs 1 to 2 % of a core at 1,500 requests/s, and
// buys that nothing malformed gets further than here. After an error, it returns what could be made out.
func decode(m streams.StoredRequest) (core.Request, error) {
	var body schema.Request
	err := schema.Decode(m.Body, &body)
	if err == nil {
		return core.NewRequest(&body, m.Seq, m.StoredAt, m.Body), nil
	}
	var head struct {
		ID      schema.RequestID `json:"request_id"`
		Tenant  string           `json:"tenant"`
		Model   string           `json:"model"`
		Ingress schema.IngressID `json:"ingress"`
	}
	q := core.Request{Seq: m.Seq, StoredAt: m.StoredAt, Body: m.Body}
	if json.Unmarshal(m.Body, &head) == nil && head.ID.Valid() {
		q.ID, q.Tenant, q.Model, q.Ingress = head.ID, head.Tenant, head.Model, head.Ingress
	}
	return q, err
}

// badEvent keeps an event that cannot be read where an operator finds it, and goes on without it.
func (s *Scheduler) badEvent(seq uint64, body []byte, err error) {
	s.log.Error("event is not readable", "event_seq", seq, "error", err)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StopTimeout)
	defer cancel()
	if err := s.client.PublishDeadLetter(ctx, "scheduler", "evt."+strconv.FormatUint(seq, 10), err.Error(), body); err != nil {
		s.log.Error("dead letter not stored", "event_seq", seq, "error", err)
	}
}
