package ingress

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/gofiber/fiber/v2"
)

// maxClientID is how much of a client's X-Request-Id is kept.
const maxClientID = 128

// keepBody is the largest buffer that a connection keeps for its bodies.
const keepBody = 64 << 10

// maxDeadline is the longest X-SLO-E2E-Ms.
const maxDeadline = 24 * time.Hour

// generate answers POST of both endpoints: see the package's documentation for the order of things.
func (s *Server) generate(c *fiber.Ctx, kind schema.Kind) error {
	a := &answer{call: call{kind: kind, arrived: time.Now(), pool: s.cfg.Pool}}
	r := &a.call
	if e := s.identify(c, r); e != nil {
		return s.reject(c, e)
	}
	if last := c.Get("Last-Event-ID"); last != "" {
		return s.resume(c, r, last)
	}
	if s.pendingEvents() > s.maxPending/2 { // the rest is for the events of requests that are open
		s.metrics.refuse(schema.RefusedUnavailable)
		return answerError(c, refusal(schema.RefusedUnavailable, s.retryAfter()))
	}
	body := c.Context().Request.Body()
	if reason := s.gate.reserve(&a.place, r.tenant, len(body)); reason != "" {
		s.emitReceived(r)
		return s.refuse(c, r, reason)
	}
	relayed, handed := false, false
	defer func() {
		switch {
		case !relayed:
			s.desk.end(r.id, online.Ending{How: online.Left}, s.since())
			s.gate.free(&a.place)
		case !handed: // a panic: nobody would write the answer
			s.close(a, schema.CancelDisconnect)
		}
	}()
	req, live, e := s.read(c, a, body)
	c.Context().Request.ReleaseBody(keepBody) // nothing of it is needed while the answer is generated
	if e != nil {
		return s.reject(c, e)
	}
	if !s.client.Connected() { // a publication would lie in the client's buffer, and be stored after we gave up
		s.emitReceived(r)
		return s.refuse(c, r, schema.RefusedUnavailable)
	}
	if !live {
		s.emitReceived(r)
		return s.refuse(c, r, schema.RefusedNoWorker)
	}
	if reason := s.admit(c, r, req, &a.place); reason != "" {
		s.emitReceived(r)
		return s.refuse(c, r, reason)
	}
	b := s.newBody(c, a)
	a.quiet, a.patience = time.Now(), s.cfg.Silence
	_ = a.attach(b, 0) // the first event always exists
	s.relay.put(a)     // its tokens may be here before the store's acknowledgement
	relayed = true
	err := s.relayOver(c, b, req)
	handed = true
	return err
}

// admit decides whether a request is let in, and tells its client by which rule. It returns why it is not.
func (s *Server) admit(c *fiber.Ctx, r *call, req *schema.Request, p *place) schema.RefusalReason {
	if reason := s.gate.amend(p, int64(r.prompt)+int64(r.output)); reason != "" {
		return reason
	}
	r.said = s.desk.decide(r, req.Prompt, s.since())
	v := &r.said
	if s.cfg.RevealPrediction && v.outlook.Predicted > 0 {
		ms := func(name string, d time.Duration) { c.Set(name, strconv.FormatInt(max(0, d).Milliseconds(), 10)) }
		ms("X-Cadence-Predicted-Ms", v.outlook.Predicted)
		ms("X-Cadence-Queue-Ms", v.queue)
		if v.outlook.Bound > 0 {
			ms("X-Cadence-Bound-Ms", v.outlook.Bound)
		}
	}
	if !v.Admit {
		return cmp.Or(v.Reason.Refusal(), schema.RefusedSLO)
	}
	c.Set(decisionHeader, v.by)
	if r.asked == schema.Guaranteed {
		r.class = v.Class
	}
	req.Class = r.class
	return ""
}

// decisionHeader tells by which rule a request was let in or refused.
const decisionHeader = "X-Cadence-Decision"

// relayOver stores a request whose answer b is to write, and writes it.
func (s *Server) relayOver(c *fiber.Ctx, b *body, req *schema.Request) error {
	a := b.a
	seq, err := s.publish(&a.call, req)
	s.emitReceived(&a.call) // not before: it would go first on the connection, and the request is what a client waits for
	if err != nil {
		return s.unpublished(c, a, err)
	}
	s.desk.stored(a.id, seq, s.since())
	s.emitAdmitted(&a.call, seq)
	if a.isClosed() { // the client went away meanwhile, perhaps before anyone could know what to cancel
		s.hurryCancel(&a.call, schema.CancelDisconnect)
	}
	if a.stream {
		return s.stream(c, b)
	}
	return s.whole(c, b)
}

// identify tells who asks, and names the request in the response.
func (s *Server) identify(c *fiber.Ctx, r *call) *openai.Error {
	id, err := schema.NewID(r.arrived, rand.Reader)
	if err != nil {
		s.log.Error("no request id", "error", err)
		return openai.Internal()
	}
	r.id = schema.RequestID(id)
	r.clientID = cleanID(c.Get(fiber.HeaderXRequestID))
	echo := r.clientID
	if echo == "" {
		echo = id
	}
	h := &c.Context().Response.Header
	h.Set(fiber.HeaderXRequestID, echo)
	h.Set("X-Cadence-Request-Id", id)
	var e *openai.Error
	r.tenant, e = s.tenants.of(c)
	return e
}

// cleanID keeps what can be echoed and logged: visible ASCII, and not too much of it.
func cleanID(id string) string {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, id[:min(len(id), maxClientID)])
	return strings.Clone(clean)
}

// read turns a body into a request, fills the answer's call, and tells whether a live worker serves the model.
func (s *Server) read(c *fiber.Ctx, a *answer, body []byte) (req *schema.Request, live bool, e *openai.Error) {
	if enc := c.Get(fiber.HeaderContentEncoding); enc != "" && enc != "identity" {
		return nil, false, errEncoding
	}
	if e := s.promises(c, &a.call); e != nil {
		return nil, false, e
	}
	var common *openai.Common
	var prompt []int32
	var m *served
	param := "prompt"
	if a.kind == schema.KindChat {
		param = "messages"
		q, e := openai.ParseChat(body, s.limits)
		if e != nil {
			return nil, false, e
		}
		if m, e = s.model(a, q.Model); e != nil {
			return nil, false, e
		}
		if prompt, e = m.chatPrompt(q.Messages); e != nil {
			return nil, false, e
		}
		common = &q.Common
	} else {
		q, e := openai.ParseCompletion(body, s.limits)
		if e != nil {
			return nil, false, e
		}
		if m, e = s.model(a, q.Model); e != nil {
			return nil, false, e
		}
		if prompt = q.PromptTokens; len(prompt) > 0 {
			e = m.tokenPrompt(prompt)
		} else {
			prompt, e = m.textPrompt(q.Prompt)
		}
		if e != nil {
			return nil, false, e
		}
		common = &q.Common
	}
	grammar, e := a.want(m, common)
	if e != nil {
		return nil, false, e
	}
	pool, context, ok := s.fleet.serving(m.Name, time.Now())
	if ok {
		a.pool = pool
	}
	room, e := openai.OutputRoom(param, len(prompt), contextOf(m, context), common.MaxTokens)
	if e != nil {
		return nil, false, e
	}
	if !common.Stream {
		a.grace = 0 // there is nothing to resume
	}
	if !common.HasSeed {
		common.Sampling.Seed = s.random()
	}
	a.stream, a.includeUsage = common.Stream, common.IncludeUsage
	a.prompt, a.output = int32(len(prompt)), room
	a.head = openai.Head{Kind: a.kind, Request: a.id, Model: common.Model, Created: a.arrived, Fingerprint: m.Fingerprint}
	return &schema.Request{
		ID: a.id, Pool: a.pool, Model: m.Name, Tenant: a.tenant, Ingress: s.id, Kind: a.kind, Class: a.class, Received: a.arrived.UnixNano(),
		OnDeadline: a.late, Prompt: prompt, MaxTokens: room, Stop: common.Stop, IgnoreEOS: common.IgnoreEOS, Sampling: common.Sampling,
		Grace: a.grace, Logprobs: common.Logprobs, Grammar: grammar,
	}, ok, nil
}

// want checks that the model can tell log-probabilities and be held to a schema, where that is asked for, and returns the
// schema's grammar.
func (a *answer) want(m *served, common *openai.Common) (grammar string, e *openai.Error) {
	if common.Logprobs > 0 {
		if m.Speller == nil {
			return "", openai.Unsupported("logprobs", "the model's engine does not tell log probabilities")
		}
		a.speller = m.Speller
	}
	if common.Schema == nil {
		return "", nil
	}
	if m.Grammar == nil {
		return "", openai.Unsupported("response_format", "the model's engine writes only 'text'")
	}
	grammar, err := m.Grammar(common.Schema)
	if err != nil {
		return "", openai.InvalidParameter("response_format", "the schema cannot be served: %v", err)
	}
	return grammar, nil
}

// model finds a model by a client's name for it.
func (s *Server) model(a *answer, name string) (*served, *openai.Error) {
	m := s.models.byName[name]
	if m == nil {
		return nil, openai.ModelNotFound(name)
	}
	a.call.model = m.Name
	return m, nil
}

// promises reads the headers that ask for deadlines and the like.
func (s *Server) promises(c *fiber.Ctx, r *call) *openai.Error {
	var e *openai.Error
	if r.deadline, e = milliseconds(c, "X-SLO-E2E-Ms", 1, maxDeadline); e != nil {
		return e
	}
	if r.ttft, e = milliseconds(c, "X-SLO-TTFT-Ms", 1, maxDeadline); e != nil {
		return e
	}
	r.deadline, r.ttft = cmp.Or(r.deadline, s.cfg.SLOE2E), cmp.Or(r.ttft, s.cfg.SLOTTFT)
	r.canary = s.desk.isProbe(c.Get("X-Cadence-Probe"))
	switch late := schema.OnDeadline(c.Get("X-On-Deadline")); late {
	case "":
	case schema.OnDeadlineDemote, schema.OnDeadlineCancel, schema.OnDeadlineContinue:
		r.late = schema.OnDeadline(strings.Clone(string(late)))
	default:
		return openai.InvalidParameter("X-On-Deadline", "expected %s, %s or %s", schema.OnDeadlineDemote, schema.OnDeadlineCancel, schema.OnDeadlineContinue)
	}
	if r.grace, e = milliseconds(c, "X-Resume-Grace-Ms", 0, math.MaxInt64); e != nil {
		return e
	}
	r.grace = min(r.grace, s.cfg.MaxGrace)
	switch class := c.Get("X-SLO-Class"); class {
	case "":
	case string(schema.BestEffort):
		r.asked = schema.BestEffort
	case string(schema.Guaranteed):
		r.asked = schema.Guaranteed
	default:
		return openai.InvalidParameter("X-SLO-Class", "expected %s or %s", schema.BestEffort, schema.Guaranteed)
	}
	if r.class = r.asked; r.class == schema.Guaranteed { // until it is promised
		r.class = schema.BestEffort
	}
	return nil
}

// milliseconds reads a header of whole milliseconds in [least, most]; without it, the duration is 0.
func milliseconds(c *fiber.Ctx, header string, least int64, most time.Duration) (time.Duration, *openai.Error) {
	text := c.Get(header)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if top := int64(most / time.Millisecond); err != nil || n < least || n > top {
		return 0, openai.InvalidParameter(header, "expected whole milliseconds in [%d, %d]", least, top)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// publish stores a request, and returns its sequence.
func (s *Server) publish(r *call, req *schema.Request) (uint64, error) {
	now := time.Now()
	req.Budget, req.TTFTBudget = r.left(r.deadline, now), r.left(r.ttft, now)
	body, err := schema.Encode(req)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(s.stopped, s.cfg.PublishTimeout)
	defer cancel()
	return s.client.PublishRequest(ctx, req.Pool, req.ID, body)
}

// unpublished answers a request that could not be stored.
func (s *Server) unpublished(c *fiber.Ctx, a *answer, err error) error {
	// It may have been stored, and only the answer of the store lost: then nobody must run it.
	if errors.Is(err, streams.ErrUnavailable) {
		s.cancel(&a.call, schema.CancelDisconnect, "the store did not answer")
	}
	a.mu.Lock()
	a.closed, a.cancelled, a.reported, a.body = true, true, true, nil
	a.mu.Unlock()
	s.relay.remove(a, 0)
	s.desk.end(a.id, online.Ending{How: online.Left}, s.since())
	s.gate.free(&a.place)
	a.said.RetryAfter = 0 // it was let in
	switch {
	case errors.Is(err, streams.ErrTooLarge):
		return s.reject(c, openai.PayloadTooLarge(s.cfg.MaxBody))
	case errors.Is(err, streams.ErrFull):
		s.log.Warn("request not stored", "request_id", a.id, "error", err)
		return s.refuse(c, &a.call, schema.RefusedCapacity)
	case errors.Is(err, streams.ErrUnavailable):
		s.log.Warn("request not stored", "request_id", a.id, "error", err)
		return s.refuse(c, &a.call, schema.RefusedUnavailable)
	}
	s.log.Error("request not encoded", "request_id", a.id, "error", err)
	return s.reject(c, openai.Internal())
}

// reject answers with an error that is no refusal.
func (s *Server) reject(c *fiber.Ctx, e *openai.Error) error {
	s.metrics.rejected(e)
	return answerError(c, e)
}

// refuse answers with a 503, or 429 to a tenant that has as much as it may, after its event is stored.
func (s *Server) refuse(c *fiber.Ctx, r *call, reason schema.RefusalReason) error {
	e := s.refusalOf(r, reason)
	rule := r.said.by
	if rule == "" || r.said.Admit { // no rule refused it
		rule = string(reason)
	}
	c.Set(decisionHeader, rule)
	if reason == refusedTenant {
		r.said.by, reason = rule, schema.RefusedCapacity
	}
	s.storeRefused(r, reason, time.Duration(e.RetryAfter)*time.Second)
	s.metrics.refuse(reason)
	return answerError(c, e)
}

// retryAfter is when a refused client may come back: when those who wait now have their first tokens, with jitter, so
// that refused clients do not return together.
func (s *Server) retryAfter() time.Duration {
	wait := max(time.Second, min(s.gate.wait(), time.Minute))
	spread := max(wait, 2*time.Second)
	return wait + time.Duration(s.random()%uint64(spread))
}

// random returns 64 random bits.
func (s *Server) random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// stream starts a response of server-sent events; the server then calls b.WriteTo.
func (s *Server) stream(c *fiber.Ctx, b *body) error {
	resp := &c.Context().Response
	resp.Header.SetContentType("text/event-stream; charset=utf-8")
	resp.Header.Set(fiber.HeaderCacheControl, "no-cache")
	resp.Header.Set("X-Accel-Buffering", "no")
	if !c.Context().Request.Header.IsHTTP11() {
		return s.streamUnframed(c, b)
	}
	// The first event of a chat is ready and takes the header along; others may be long in coming.
	resp.ImmediateHeaderFlush = b.a.kind != schema.KindChat || b.from > 0
	resp.SetBodyStream(b, -1)
	return nil
}

// streamUnframed is for clients of HTTP/1.0, some proxies among them: they know no chunks, which fasthttp would send
// them, so that the end of the connection is the end of the stream.
func (s *Server) streamUnframed(c *fiber.Ctx, b *body) error {
	head := []byte("HTTP/1.1 200 OK\r\nConnection: close\r\n")
	for name, value := range c.Context().Response.Header.All() {
		if string(name) != fiber.HeaderContentLength && string(name) != fiber.HeaderConnection {
			head = append(append(append(append(head, name...), ": "...), value...), "\r\n"...)
		}
	}
	head = append(head, "\r\n"...)
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		_, err := conn.Write(head)
		if err == nil {
			_, err = b.WriteTo(conn)
		}
		_ = b.CloseWithError(err)
	})
	return nil
}

// whole answers with one JSON body.
func (s *Server) whole(c *fiber.Ctx, b *body) error {
	t := b.takeAll()
	if t.detached {
		c.Context().SetConnectionClose() // nobody reads it
		return c.SendStatus(http.StatusServiceUnavailable)
	}
	defer s.delivered(b)
	if t.failed != nil {
		return answerError(c, t.failed)
	}
	var text strings.Builder
	var logprobs []openai.Logprob
	if b.a.speller != nil {
		logprobs = []openai.Logprob{}
	}
	for i := range t.texts {
		text.WriteString(t.texts[i].text)
		if of := t.texts[i].tokens; of != nil {
			logprobs = b.a.appendLogprobs(logprobs, of)
		}
	}
	out := openai.AppendResponse(make([]byte, 0, 512), b.a.head, text.String(), logprobs, t.finish.Reason, t.usage)
	c.Context().Response.Header.SetContentType(fiber.MIMEApplicationJSON)
	c.Context().Response.SetBodyRaw(append(out, '\n'))
	return nil
}
