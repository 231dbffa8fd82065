package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/cadence-slo/cadence/schema"
)

// Line is a line of the event log, in JSON: a message of EVENTS with its place in the stream.
type Line struct {
	Seq      uint64          `json:"seq"`            // from 1, without a gap
	StoredAt int64           `json:"stored_time_ns"` // UTC
	Event    json.RawMessage `json:"event"`          // the message, as schema.Encode writes it
}

// ErrLog is returned for a line that is not of an event log.
var ErrLog = errors.New("sim: not a line of an event log")

// ReadLog calls f for each event of a log, in order; f's argument is used again.
func ReadLog(r io.Reader, f func(*schema.Stored) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var stored schema.Stored
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var l Line
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrLog, n, err)
		}
		if err := schema.Decode(l.Event, &stored.Event); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrLog, n, err)
		}
		stored.Seq, stored.StoredAt = l.Seq, l.StoredAt
		if err := f(&stored); err != nil {
			return err
		}
	}
}

// log writes the event log.
type log struct {
	out  *bufio.Writer
	line []byte
}

func newLog(w io.Writer) *log {
	if w == nil {
		return nil
	}
	return &log{out: bufio.NewWriterSize(w, 1<<16)}
}

func (l *log) add(e *schema.Stored) error {
	body, err := schema.Encode(&e.Event)
	if err != nil {
		return err
	}
	b := l.line[:0]
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `,"stored_time_ns":`...)
	b = strconv.AppendInt(b, e.StoredAt, 10)
	b = append(b, `,"event":`...)
	b = append(b, body...)
	b = append(b, '}', '\n')
	l.line = b
	_, err = l.out.Write(b)
	return err
}

func (l *log) close() error {
	if l == nil {
		return nil
	}
	return l.out.Flush()
}

// store gives s.stored its place in EVENTS, and writes it to the log.
func (s *sim) store() {
	s.stored.Seq++
	s.stored.StoredAt = s.wall()
	if s.log != nil {
		s.fail(s.log.add(&s.stored))
	}
}

// front starts an event of the ingress.
func (s *sim) front(t schema.Type, r *request) schema.Event {
	return schema.Event{Type: t, Time: s.wall(), Source: front, Ingress: front, Request: r.id, Pool: pool, Model: model, Tenant: r.tenant}
}

// asked adds what the client asked for.
func (s *sim) asked(t schema.Type, r *request) *schema.Event {
	s.stored.Event = s.front(t, r)
	e := &s.stored.Event
	e.Kind, e.Class, e.Stream = schema.KindCompletion, r.class, true
	return e
}

func (s *sim) emitReceived(r *request) {
	e := s.asked(schema.Received, r)
	e.Time = Start + int64(r.rec.Intended)
	e.PromptTokens, e.MaxTokens = int32(r.rec.PromptTokens), int32(r.maxNew)
	if r.budget > 0 {
		e.Budget = r.budget + s.cfg.Latency.Request
	}
	s.store()
}

func (s *sim) emitAdmitted(r *request) {
	e := s.asked(schema.Admitted, r)
	e.RequestSeq, e.QueueTime, e.Budget = s.requestSeq, s.now-r.rec.Intended, r.budget
	if r.first > 0 {
		e.TTFTBudget = r.first + s.cfg.Latency.Request
	}
	e.PromptTokens, e.MaxTokens = int32(r.rec.PromptTokens), int32(r.maxNew)
	s.store()
}

func (s *sim) emitRefused(r *request, reason schema.RefusalReason) {
	e := s.asked(schema.Refused, r)
	e.Reason, e.RetryAfter = string(reason), r.rec.RetryAfter
	s.store()
}

func (s *sim) emitDelivered(r *request, outcome schema.Outcome, code schema.FailureCode) {
	e := s.asked(schema.Delivered, r)
	e.Reason, e.Message, e.E2E, e.TTFT = string(outcome), string(code), r.rec.E2E, max(0, r.rec.TTFT)
	e.PromptTokens, e.OutputTokens = int32(r.rec.PromptTokens), int32(r.rec.OutputTokens)
	if outcome == schema.OutcomeComplete {
		e.CachedTokens = int32(r.rec.CachedTokens)
	}
	s.store()
}

// workerEvent starts an event of a request's worker.
func (s *sim) workerEvent(t schema.Type, r *request) schema.Event {
	return schema.Event{
		Type: t, Time: s.wall(), Source: string(r.worker.id), Request: r.id, Attempt: r.attempt, Pool: pool, Model: model, Tenant: r.tenant,
		Ingress: front, Worker: r.worker.id, Kind: schema.KindCompletion, Class: r.class, PromptTokens: int32(r.rec.PromptTokens), MaxTokens: int32(r.maxNew),
	}
}

func (s *sim) emitPrefillStarted(r *request) {
	s.stored.Event = s.workerEvent(schema.PrefillStarted, r)
	s.stored.QueueTime = r.started - r.atWorker
	s.store()
}

func (s *sim) emitFirstToken(r *request) {
	s.stored.Event = s.workerEvent(schema.FirstToken, r)
	e := &s.stored.Event
	e.OutputTokens, e.CachedTokens, e.QueueTime, e.PrefillTime = 1, int32(r.rec.CachedTokens), r.started-r.atWorker, r.firstAt-r.started
	s.store()
}

func (s *sim) emitPreempted(r *request, generated int) {
	s.stored.Event = s.workerEvent(schema.Preempted, r)
	s.stored.Ordinal, s.stored.OutputTokens = r.preempted, int32(generated)
	s.store()
}
