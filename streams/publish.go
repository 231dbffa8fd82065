package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers of every stored message, in CloudEvents' binary mode beside JetStream's own.
const (
	headerID      = "ce-id"
	headerType    = "ce-type"
	headerSource  = "ce-source"
	headerTime    = "ce-time"
	headerSpec    = "ce-specversion"
	headerAttempt = "Cadence-Attempt"
	headerIndex   = "Cadence-Index"
)

// PublishRequest stores an encoded request and returns its sequence in REQUESTS. The id makes a repetition harmless:
// time-outs are retried here until ctx ends. It returns ErrFull, ErrTooLarge or ErrUnavailable.
func (c *Client) PublishRequest(ctx context.Context, pool string, id schema.RequestID, body []byte) (uint64, error) {
	m := &nats.Msg{Subject: RequestSubject(pool), Data: body, Header: nats.Header{jetstream.MsgIDHeader: {string(id)}}}
	return c.publish(ctx, m)
}

// PublishEvent stores an event and returns its sequence in EVENTS, with the promises of PublishRequest. Use an
// EventWriter where nothing waits for the store.
func (c *Client) PublishEvent(ctx context.Context, e *schema.Event) (uint64, error) {
	m, err := eventMsg(e)
	if err != nil {
		return 0, err
	}
	return c.publish(ctx, m)
}

// PublishDeadLetter stores what a service could not read, under the id of what it was.
func (c *Client) PublishDeadLetter(ctx context.Context, service, id, reason string, body []byte) error {
	m := &nats.Msg{Subject: DeadLetterSubject(service), Data: body, Header: nats.Header{
		jetstream.MsgIDHeader: {id}, headerID: {id}, headerType: {"dead_letter"}, headerSource: {service}, "Cadence-Reason": {reason},
	}}
	_, err := c.publish(ctx, m)
	return err
}

// publish stores m, which has a message id, repeating until the server answers or ctx ends.
func (c *Client) publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		// What a dying server took along is never answered: the first tries are short.
		once, cancel := context.WithTimeout(ctx, min(10*wait, c.cfg.Timeout))
		ack, err := c.js.PublishMsg(once, m, jetstream.WithRetryAttempts(0))
		cancel()
		if err == nil {
			return ack.Sequence, nil
		}
		err = publishError(err)
		if !errors.Is(err, ErrUnavailable) {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(wait):
		}
	}
}

// PublishChunk sends tokens to the ingress that holds the client, without waiting: TOKENS keeps them too.
func (c *Client) PublishChunk(in schema.IngressID, chunk *schema.Chunk) error {
	body, err := schema.Encode(chunk)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: TokenSubject(in, chunk.Request), Data: body, Header: nats.Header{
		headerAttempt: {strconv.FormatUint(uint64(chunk.Attempt), 10)},
		headerIndex:   {strconv.Itoa(int(chunk.Index))},
	}})
}

// PublishStep sends an engine step, without waiting.
func (c *Client) PublishStep(s *schema.Step) error {
	body, err := schema.Encode(s)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: StepSubject(s.Worker), Data: body})
}

// send publishes without a reply; while disconnected, the client library buffers up to 64 MiB.
func (c *Client) send(m *nats.Msg) error {
	if err := c.nc.PublishMsg(m); err != nil {
		return publishError(err)
	}
	return nil
}

func eventMsg(e *schema.Event) (*nats.Msg, error) {
	body, err := schema.Encode(e)
	if err != nil {
		return nil, err
	}
	id := e.DedupID()
	h := nats.Header{
		headerSpec:   {"1.0"},
		headerType:   {"cadence." + string(e.Type)},
		headerSource: {e.Source},
		headerTime:   {time.Unix(0, e.Time).UTC().Format(time.RFC3339Nano)},
	}
	if id != "" {
		h[headerID] = []string{id}
		h[jetstream.MsgIDHeader] = h[headerID]
	} else {
		h[headerID] = []string{fmt.Sprintf("%s.%d.%s", e.Pool, e.Time, e.Type)}
	}
	return &nats.Msg{Subject: EventSubject(e), Data: body, Header: h}, nil
}
