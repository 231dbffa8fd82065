package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go"
)

// Dispatch asks a worker to take requests. It returns ErrNoListener if the worker is gone and ErrUnavailable if it
// did not answer within ctx: asking again is harmless.
func (c *Client) Dispatch(ctx context.Context, w schema.WorkerID, d *schema.Dispatch) (*schema.DispatchReply, error) {
	body, err := schema.Encode(d)
	if err != nil {
		return nil, err
	}
	reply := new(schema.DispatchReply)
	if err := c.request(ctx, DispatchSubject(w), body, func(b []byte) error { return schema.Decode(b, reply) }); err != nil {
		return nil, err
	}
	if len(reply.Verdicts) != len(d.Items) {
		return nil, fmt.Errorf("%w dispatch reply: %d verdicts for %d items", schema.ErrInvalid, len(reply.Verdicts), len(d.Items))
	}
	return reply, nil
}

// ServeDispatch answers dispatches to a worker. The handler owns its argument and must answer quickly.
func (c *Client) ServeDispatch(w schema.WorkerID, answer func(*schema.Dispatch) *schema.DispatchReply) (*nats.Subscription, error) {
	return c.serve(DispatchSubject(w), func(b []byte) ([]byte, error) {
		d := new(schema.Dispatch)
		if err := schema.Decode(b, d); err != nil {
			return nil, err
		}
		return schema.Encode(answer(d))
	})
}

// Seal asks an ingress what it has relayed of a request and makes it drop later tokens of attempts up to s.Attempt.
// It returns ErrNoListener if the ingress is gone.
func (c *Client) Seal(ctx context.Context, in schema.IngressID, s *schema.Seal) (*schema.SealReply, error) {
	body, err := schema.Encode(s)
	if err != nil {
		return nil, err
	}
	reply := new(schema.SealReply)
	return reply, c.request(ctx, SealSubject(in), body, func(b []byte) error { return schema.Decode(b, reply) })
}

// ServeSeal answers seals of an ingress.
func (c *Client) ServeSeal(in schema.IngressID, answer func(*schema.Seal) *schema.SealReply) (*nats.Subscription, error) {
	return c.serve(SealSubject(in), func(b []byte) ([]byte, error) {
		s := new(schema.Seal)
		if err := schema.Decode(b, s); err != nil {
			return nil, err
		}
		return schema.Encode(answer(s))
	})
}

// PublishCancel asks whoever runs a request to stop it.
func (c *Client) PublishCancel(m *schema.Cancel) error {
	body, err := schema.Encode(m)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: CancelSubject(m.Request), Data: body})
}

// SubscribeCancels calls handle for every cancel of any request.
func (c *Client) SubscribeCancels(handle func(*schema.Cancel)) (*nats.Subscription, error) {
	return subscribe(c, "cancel.*", func() *schema.Cancel { return new(schema.Cancel) }, handle)
}

// PublishWorkerState sends a heartbeat.
func (c *Client) PublishWorkerState(s *schema.WorkerState) error {
	body, err := schema.Encode(s)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: WorkerStateSubject(s.Worker), Data: body})
}

// SubscribeWorkerStates calls handle for every worker's heartbeats.
func (c *Client) SubscribeWorkerStates(handle func(*schema.WorkerState)) (*nats.Subscription, error) {
	return subscribe(c, "state.worker.*", func() *schema.WorkerState { return new(schema.WorkerState) }, handle)
}

// PublishEngineState sends what a worker's engine holds.
func (c *Client) PublishEngineState(s *schema.EngineState) error {
	body, err := schema.Encode(s)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: EngineStateSubject(s.Worker), Data: body})
}

// SubscribeEngineStates calls handle for what every worker's engine holds.
func (c *Client) SubscribeEngineStates(handle func(*schema.EngineState)) (*nats.Subscription, error) {
	return subscribe(c, "engine.*", func() *schema.EngineState { return new(schema.EngineState) }, handle)
}

// PublishPoolState sends what waits for a pool.
func (c *Client) PublishPoolState(s *schema.PoolState) error {
	body, err := schema.Encode(s)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: PoolStateSubject(s.Pool), Data: body})
}

// SubscribePoolStates calls handle for what waits for every pool.
func (c *Client) SubscribePoolStates(handle func(*schema.PoolState)) (*nats.Subscription, error) {
	return subscribe(c, "state.pool.*", func() *schema.PoolState { return new(schema.PoolState) }, handle)
}

// SubscribeSteps calls handle for the engine steps that every worker stores.
func (c *Client) SubscribeSteps(handle func(*schema.Step)) (*nats.Subscription, error) {
	return subscribe(c, "step.*", func() *schema.Step { return new(schema.Step) }, handle)
}

// PublishIngressState sends a heartbeat.
func (c *Client) PublishIngressState(s *schema.IngressState) error {
	body, err := schema.Encode(s)
	if err != nil {
		return err
	}
	return c.send(&nats.Msg{Subject: IngressStateSubject(s.Ingress), Data: body})
}

// SubscribeIngressStates calls handle for every ingress's heartbeats.
func (c *Client) SubscribeIngressStates(handle func(*schema.IngressState)) (*nats.Subscription, error) {
	return subscribe(c, "state.ingress.*", func() *schema.IngressState { return new(schema.IngressState) }, handle)
}

// Flush returns when the server has everything that was sent.
func (c *Client) Flush(ctx context.Context) error {
	return publishError(c.nc.FlushWithContext(ctx))
}

// request sends body and hands the answer to read.
func (c *Client) request(ctx context.Context, subject string, body []byte, read func([]byte) error) error {
	m, err := c.nc.RequestWithContext(ctx, subject, body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w on %s", ErrNoListener, subject)
	case err != nil:
		return publishError(err)
	}
	return read(m.Data)
}

// serve answers requests on a subject. What cannot be read gets no answer: the asker's time-out tells it.
func (c *Client) serve(subject string, answer func([]byte) ([]byte, error)) (*nats.Subscription, error) {
	s, err := c.nc.Subscribe(subject, func(m *nats.Msg) {
		out, err := answer(m.Data)
		if err == nil {
			err = m.Respond(out)
		}
		if err != nil {
			c.log.Error("request not answered", "subject", subject, "error", err)
		}
	})
	if err != nil {
		return nil, publishError(err)
	}
	return s, c.settle()
}

// subscribe decodes every message on a subject and hands it over; what cannot be read is logged and dropped.
func subscribe[M schema.Body](c *Client, subject string, fresh func() M, handle func(M)) (*nats.Subscription, error) {
	s, err := c.nc.Subscribe(subject, func(m *nats.Msg) {
		v := fresh()
		if err := schema.Decode(m.Data, v); err != nil {
			c.log.Error("message dropped", "subject", m.Subject, "error", err)
			return
		}
		handle(v)
	})
	if err != nil {
		return nil, publishError(err)
	}
	return s, c.settle()
}

// settle waits until the server knows of a new subscription, so that whoever hears of this process can reach it.
func (c *Client) settle() error { return publishError(c.nc.FlushTimeout(c.cfg.Timeout)) }
