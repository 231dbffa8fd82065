package analytics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// session is the state of one uninterrupted reading.
type session struct {
	*pipeline
	streamID string
	consumer jetstream.Consumer
	block    block

	seen     uint64 // last sequence taken
	consumed uint64 // last consumer sequence
	// repeat is a range that an earlier session started and may not have landed; it is cut
	// where it was cut then. Zero if there is none.
	repeat seqRange
	// The range being gathered: messages from its first to seen.
	first, last *delivery
	bad         []badMessage
	rejected    []run // single rows that the server refused once
}

// badMessage is one that no row can be made of.
type badMessage struct {
	seq  uint64
	body []byte
	err  error
}

// loop gathers ranges and lands them.
func (s *session) loop(ctx context.Context, deliveries <-chan delivery, lost <-chan error) error {
	flush := time.NewTimer(s.cfg.FlushInterval)
	flush.Stop()
	defer flush.Stop()
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		select {
		case d := <-deliveries:
			if err := s.take(ctx, &d, flush); err != nil {
				return err
			}
		case <-flush.C:
			if err := s.flushDue(ctx, flush); err != nil {
				return err
			}
		case <-look.C:
			if err := s.look(ctx); err != nil {
				return err
			}
		case err := <-lost:
			if _, why := s.lookAt(ctx, s.consumer); errors.Is(why, ErrDeposed) {
				return why
			}
			return err
		case <-ctx.Done():
			return s.stop(ctx)
		}
	}
}

// take adds a message to the range and lands the range if it is full.
func (s *session) take(ctx context.Context, d *delivery, flush *time.Timer) error {
	if d.consumerSeq != s.consumed+1 {
		return fmt.Errorf("%w: %d after %d", errGap, d.consumerSeq, s.consumed)
	}
	s.consumed++
	if d.seq <= s.seen { // delivered again while it waits here
		return nil
	}
	if s.repeat.last > 0 && d.seq > s.repeat.last { // the end of the range was deleted meanwhile
		if err := s.land(ctx); err != nil {
			return err
		}
	}
	s.seen = d.seq
	if s.first == nil {
		s.first = d
		s.metrics.lag.first(d.stored)
		flush.Reset(s.cfg.FlushInterval)
	}
	s.last = d
	if err := s.block.add(d.place, d.msg.Data()); err != nil {
		s.bad = append(s.bad, badMessage{seq: d.seq, body: d.msg.Data(), err: err})
	}
	full := s.block.set().rows()+len(s.bad) >= s.cfg.FlushRows
	if s.repeat.last > 0 {
		full = d.seq == s.repeat.last
	}
	if !full {
		return nil
	}
	flush.Stop()
	return s.land(ctx)
}

// flushDue lands a range that has waited for the interval. One that is repeated waits
// for its end instead, unless that was deleted.
func (s *session) flushDue(ctx context.Context, flush *time.Timer) error {
	if s.repeat.last > 0 {
		info, err := s.lookAt(ctx, s.consumer)
		if err != nil {
			return err
		}
		if info.NumPending > 0 || info.Delivered.Consumer != s.consumed {
			flush.Reset(s.cfg.FlushInterval)
			return nil
		}
	}
	return s.land(ctx)
}

// look keeps the lag true and notices what the consumer's own messages may not tell.
func (s *session) look(ctx context.Context) error {
	info, err := s.lookAt(ctx, s.consumer)
	switch {
	case errors.Is(err, errLost), errors.Is(err, ErrDeposed):
		return err
	case err != nil: // NATS is away; the client library reconnects
		s.log.Debug("consumer", "error", err)
		return nil
	}
	s.metrics.lag.waiting(info.NumPending + uint64(info.NumAckPending))
	return nil
}

// stop lands what has gathered, unless it is part of a range to be repeated.
func (s *session) stop(ctx context.Context) error {
	if s.first == nil || s.repeat.last > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StopTimeout)
	defer cancel()
	return s.land(ctx)
}

// land makes the gathered range part of the table, for good: the range is written as
// started, then its rows, its dead letters, and the range as landed. Each step is repeated
// until it succeeds, so that an error is ctx's, ErrDeposed, or errLost.
func (s *session) land(ctx context.Context) error {
	if s.first == nil { // a repeated range of which nothing is left
		s.repeat = seqRange{}
		return nil
	}
	r := seqRange{first: s.first.seq, last: s.last.seq}
	if s.repeat.last > 0 {
		r = s.repeat // its tokens are named by the ends that it had
	}
	info, err := s.owned(ctx)
	if err != nil {
		return err
	}
	if err := s.write(ctx, started, r); err != nil {
		return err
	}
	if err := s.crash("started"); err != nil {
		return err
	}
	if err := s.insertAll(ctx, r); err != nil {
		return err
	}
	for _, b := range s.bad {
		if err := s.deadLetter(ctx, b); err != nil {
			return err
		}
	}
	if err := s.crash("inserted"); err != nil {
		return err
	}
	if err := s.write(ctx, landed, r); err != nil {
		return err
	}
	s.metrics.lag.landed(s.last.place, info.NumPending)
	if err := s.last.msg.Ack(); err != nil { // a courtesy: the position is in ClickHouse
		s.log.Debug("acknowledgement", "error", err)
	}
	s.log.Debug("range landed", "first_seq", r.first, "last_seq", r.last, "rows", s.block.set().rows(), "bad", len(s.bad))
	s.block.set().truncate()
	clear(s.bad)
	s.bad, s.first, s.last, s.repeat = s.bad[:0], nil, nil, seqRange{}
	return nil
}

// owned waits until NATS confirms that the consumer is still this projector's.
func (s *session) owned(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	for wait := backoffMin; ; wait = min(2*wait, backoffMax) {
		info, err := s.lookAt(ctx, s.consumer)
		if err == nil || errors.Is(err, errLost) || errors.Is(err, ErrDeposed) {
			return info, err
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}
