package analytics

import (
	"fmt"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"github.com/cadence-slo/cadence/schema"
)

// block holds decoded messages of one stream as columns, in the order of their
// sequences. It belongs to one goroutine.
type block interface {
	// add decodes a message into a row. An error leaves the block as it was.
	add(place, []byte) error
	// set returns the columns.
	set() *columnSet
}

// place is where a message lies in its stream.
type place struct {
	seq    uint64
	stored time.Time
}

// column is one column of a block.
type column interface {
	spec() ch.ColumnNameAndType
	// appendTo appends rows [from, to).
	appendTo(dst driver.BatchColumn, from, to int) error
	truncate()
}

// values is a column of Go type T that crosses the wire as ClickHouse type typ. The
// server converts strings to LowCardinality itself, which costs less than building
// dictionaries here.
type values[T any] struct {
	name, typ string
	v         []T
}

func (c *values[T]) spec() ch.ColumnNameAndType {
	return ch.ColumnNameAndType{Name: c.name, Type: c.typ}
}
func (c *values[T]) appendTo(dst driver.BatchColumn, from, to int) error {
	return dst.Append(c.v[from:to])
}
func (c *values[T]) add(v T)   { c.v = append(c.v, v) }
func (c *values[T]) truncate() { clear(c.v); c.v = c.v[:0] }

// columnSet is the columns of a table, in the order of its insert statement. Every
// table has those of a message's place.
type columnSet struct {
	all      []column
	streamID string

	streamIDs *values[string]
	seq       *values[uint64]
	stored    *values[time.Time]
	bodies    [][]byte // the messages, for dead letters
}

// register adds a column to the set.
func register[T any](s *columnSet, name, typ string) *values[T] {
	c := &values[T]{name: name, typ: typ}
	s.all = append(s.all, c)
	return c
}

const timeType = "DateTime64(9, 'UTC')"

func (s *columnSet) text(name string) *values[string]   { return register[string](s, name, "String") }
func (s *columnSet) int64(name string) *values[int64]   { return register[int64](s, name, "Int64") }
func (s *columnSet) int32(name string) *values[int32]   { return register[int32](s, name, "Int32") }
func (s *columnSet) uint64(name string) *values[uint64] { return register[uint64](s, name, "UInt64") }
func (s *columnSet) uint32(name string) *values[uint32] { return register[uint32](s, name, "UInt32") }
func (s *columnSet) float32(name string) *values[float32] {
	return register[float32](s, name, "Float32")
}
func (s *columnSet) time(name string) *values[time.Time] {
	return register[time.Time](s, name, timeType)
}

// place registers the columns of a message's place.
func (s *columnSet) place() {
	s.streamIDs = s.text("stream_id")
	s.seq = s.uint64("seq")
	s.stored = s.time("stored")
}

func (s *columnSet) addPlace(p place, body []byte) {
	s.streamIDs.add(s.streamID)
	s.seq.add(p.seq)
	s.stored.add(p.stored)
	s.bodies = append(s.bodies, body)
}

func (s *columnSet) set() *columnSet { return s }
func (s *columnSet) rows() int       { return len(s.seq.v) }

// specs returns what an insert over HTTP needs to know about the columns.
func (s *columnSet) specs() []ch.ColumnNameAndType {
	specs := make([]ch.ColumnNameAndType, len(s.all))
	for i, c := range s.all {
		specs[i] = c.spec()
	}
	return specs
}

// appendTo appends rows [from, to) to a batch.
func (s *columnSet) appendTo(b driver.Batch, from, to int) error {
	for i, c := range s.all {
		if err := c.appendTo(b.Column(i), from, to); err != nil {
			return fmt.Errorf("column %s: %w", c.spec().Name, err)
		}
	}
	return nil
}

// truncate empties the set and keeps its memory.
func (s *columnSet) truncate() {
	for _, c := range s.all {
		c.truncate()
	}
	clear(s.bodies)
	s.bodies = s.bodies[:0]
}

// eventBlock is a block of table events.
type eventBlock struct {
	columnSet
	event schema.Event // decoded into, so that it is allocated once

	typ                                           *values[string]
	ts                                            *values[time.Time]
	source                                        *values[string]
	requestID                                     *values[uuid.UUID]
	attempt, ordinal                              *values[uint32]
	pool, model, tenant, ingress, worker          *values[string]
	clientRequestID, kind, class                  *values[string]
	stream                                        *values[bool]
	budget, grace                                 *values[int64]
	reason, message                               *values[string]
	retryAfter                                    *values[int64]
	promptTokens, cachedTokens, maxTokens         *values[int32]
	outputTokens, resumeTokens                    *values[int32]
	queueTime, prefillTime, decodeTime, ttft, e2e *values[int64]
	requestSeq, epoch                             *values[uint64]
	queueDepth                                    *values[int32]
	backend, fingerprint                          *values[string]
	slots, kvPages, contextTokens                 *values[int32]
	payload                                       *values[[]byte]
	decision, artifact                            *values[string]
	ttftBudget, predicted, predictedTTFT, bound   *values[int64]
	boundLevel, meet, gain                        *values[float32]
	cost                                          *values[int64]
	lambda, propensity                            *values[float32]
	physics                                       *values[int64]
	features                                      *values[[]float32]
}

// newEventBlock returns an empty block; streamID goes into every row.
func newEventBlock(streamID string) block {
	b := &eventBlock{columnSet: columnSet{streamID: streamID}}
	b.typ = b.text("type")
	b.ts = b.time("ts")
	b.place()
	b.source = b.text("source")
	b.requestID = register[uuid.UUID](&b.columnSet, "request_id", "UUID")
	b.attempt, b.ordinal = b.uint32("attempt"), b.uint32("ordinal")
	b.pool, b.model, b.tenant = b.text("pool"), b.text("model"), b.text("tenant")
	b.ingress, b.worker = b.text("ingress"), b.text("worker")
	b.clientRequestID, b.kind, b.class = b.text("client_request_id"), b.text("kind"), b.text("class")
	b.stream = register[bool](&b.columnSet, "stream", "Bool")
	b.budget, b.grace = b.int64("budget_ns"), b.int64("grace_ns")
	b.reason, b.message = b.text("reason"), b.text("message")
	b.retryAfter = b.int64("retry_after_ns")
	b.promptTokens, b.cachedTokens, b.maxTokens = b.int32("prompt_tokens"), b.int32("cached_tokens"), b.int32("max_tokens")
	b.outputTokens, b.resumeTokens = b.int32("output_tokens"), b.int32("resume_tokens")
	b.queueTime, b.prefillTime, b.decodeTime = b.int64("queue_ns"), b.int64("prefill_ns"), b.int64("decode_ns")
	b.ttft, b.e2e = b.int64("ttft_ns"), b.int64("e2e_ns")
	b.requestSeq, b.epoch = b.uint64("request_seq"), b.uint64("epoch")
	b.queueDepth = b.int32("queue_depth")
	b.backend, b.fingerprint = b.text("backend"), b.text("fingerprint")
	b.slots, b.kvPages, b.contextTokens = b.int32("slots"), b.int32("kv_pages"), b.int32("context_tokens")
	b.payload = register[[]byte](&b.columnSet, "payload", "String")
	b.decision, b.artifact = b.text("decision"), b.text("artifact")
	b.ttftBudget, b.predicted, b.predictedTTFT = b.int64("ttft_budget_ns"), b.int64("predicted_ns"), b.int64("predicted_ttft_ns")
	b.bound, b.boundLevel = b.int64("bound_ns"), b.float32("bound_level")
	b.meet, b.gain, b.cost, b.lambda = b.float32("meet"), b.float32("gain"), b.int64("cost_ns"), b.float32("lambda")
	b.propensity, b.physics = b.float32("propensity"), b.int64("physics_ns")
	b.features = register[[]float32](&b.columnSet, "features", "Array(Float32)")
	return b
}

func (b *eventBlock) add(p place, body []byte) error {
	e := &b.event
	if err := schema.Decode(body, e); err != nil {
		return err
	}
	var id uuid.UUID
	if e.Request != "" {
		var err error
		if id, err = uuid.Parse(string(e.Request)); err != nil {
			return fmt.Errorf("request_id: %w", err)
		}
	}
	b.typ.add(string(e.Type))
	b.ts.add(time.Unix(0, e.Time).UTC())
	b.addPlace(p, body)
	b.source.add(e.Source)
	b.requestID.add(id)
	b.attempt.add(e.Attempt)
	b.ordinal.add(e.Ordinal)
	b.pool.add(e.Pool)
	b.model.add(e.Model)
	b.tenant.add(e.Tenant)
	b.ingress.add(string(e.Ingress))
	b.worker.add(string(e.Worker))
	b.clientRequestID.add(e.ClientRequest)
	b.kind.add(string(e.Kind))
	b.class.add(string(e.Class))
	b.stream.add(e.Stream)
	b.budget.add(int64(e.Budget))
	b.grace.add(int64(e.Grace))
	b.reason.add(e.Reason)
	b.message.add(e.Message)
	b.retryAfter.add(int64(e.RetryAfter))
	b.promptTokens.add(e.PromptTokens)
	b.cachedTokens.add(e.CachedTokens)
	b.maxTokens.add(e.MaxTokens)
	b.outputTokens.add(e.OutputTokens)
	b.resumeTokens.add(e.ResumeTokens)
	b.queueTime.add(int64(e.QueueTime))
	b.prefillTime.add(int64(e.PrefillTime))
	b.decodeTime.add(int64(e.DecodeTime))
	b.ttft.add(int64(e.TTFT))
	b.e2e.add(int64(e.E2E))
	b.requestSeq.add(e.RequestSeq)
	b.epoch.add(e.Epoch)
	b.queueDepth.add(e.QueueDepth)
	b.backend.add(e.Backend)
	b.fingerprint.add(e.Fingerprint)
	b.slots.add(e.Slots)
	b.kvPages.add(e.KVPages)
	b.contextTokens.add(e.ContextTokens)
	b.payload.add(body)
	b.decision.add(e.Decision)
	b.artifact.add(e.Artifact)
	b.ttftBudget.add(int64(e.TTFTBudget))
	b.predicted.add(int64(e.Predicted))
	b.predictedTTFT.add(int64(e.PredictedTTFT))
	b.bound.add(int64(e.Bound))
	b.boundLevel.add(e.BoundLevel)
	b.meet.add(e.Meet)
	b.gain.add(e.Gain)
	b.cost.add(int64(e.Cost))
	b.lambda.add(e.Lambda)
	b.propensity.add(e.Propensity)
	b.physics.add(int64(e.Physics))
	b.features.add(e.Features) // made by Decode: the next event has others
	return nil
}

// stepBlock is a block of table engine_steps.
type stepBlock struct {
	columnSet
	stepBody schema.Step // decoded into, so that it is allocated once

	worker                                    *values[string]
	ts                                        *values[time.Time]
	step                                      *values[uint64]
	prefillTokens, decodeBatch, contextTokens *values[int32]
	duration                                  *values[int64]
	kvFreePages, kvHighWater                  *values[int32]
}

// newStepBlock returns an empty block; streamID goes into every row.
func newStepBlock(streamID string) block {
	b := &stepBlock{columnSet: columnSet{streamID: streamID}}
	b.worker = b.text("worker")
	b.ts = b.time("ts")
	b.place()
	b.step = b.uint64("step")
	b.prefillTokens, b.decodeBatch, b.contextTokens = b.int32("prefill_tokens"), b.int32("decode_batch"), b.int32("context_tokens")
	b.duration = b.int64("duration_ns")
	b.kvFreePages, b.kvHighWater = b.int32("kv_free_pages"), b.int32("kv_high_water_pages")
	return b
}

func (b *stepBlock) add(p place, body []byte) error {
	s := &b.stepBody
	if err := schema.Decode(body, s); err != nil {
		return err
	}
	b.worker.add(string(s.Worker))
	b.ts.add(time.Unix(0, s.Time).UTC())
	b.addPlace(p, body)
	b.step.add(s.Step)
	b.prefillTokens.add(s.PrefillTokens)
	b.decodeBatch.add(s.DecodeBatch)
	b.contextTokens.add(s.ContextTokens)
	b.duration.add(int64(s.Duration))
	b.kvFreePages.add(s.KVFreePages)
	b.kvHighWater.add(s.KVHighWater)
	return nil
}
