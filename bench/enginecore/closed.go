package enginecore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
)

// ErrAnswer is returned when an answer failed.
var ErrAnswer = errors.New("enginecore: a request failed")

// Names on the wire.
const (
	pool    = "profile"
	ingress = schema.IngressID("profile")
)

// tokenizer makes tokens of text, as an ingress does.
type tokenizer interface {
	Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error)
	AppendPiece(dst []byte, token int32, special bool) ([]byte, error)
}

// closed keeps so many requests in the worker at once. Its run is one goroutine's; chunk is the client's.
type closed struct {
	rig       *Rig
	requests  *workload.Generator
	tokenizer tokenizer
	model     string
	output    int
	free      chan struct{} // a token for each request that is not in the worker
	next      int           // request
	tokens    atomic.Int64  // received
	ends      atomic.Int64
	failed    atomic.Pointer[string]
}

func newClosed(rig *Rig, requests *workload.Generator, t tokenizer, model string, output, at int) *closed {
	c := &closed{rig: rig, requests: requests, tokenizer: t, model: model, output: output, free: make(chan struct{}, at)}
	for range at {
		c.free <- struct{}{}
	}
	return c
}

func (c *closed) chunk(m *schema.Chunk) {
	c.tokens.Add(int64(len(m.IDs)))
	if m.Error != nil {
		c.failed.Store(&m.Error.Message)
	}
	if m.Finish == nil && m.Error == nil {
		return
	}
	c.ends.Add(1)
	select {
	case c.free <- struct{}{}:
	default: // an end of more than was asked; the next dispatch is full
	}
}

// run keeps the worker busy until ctx ends.
func (c *closed) run(ctx context.Context) error {
	var items []schema.DispatchItem
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		if len(items) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-c.rig.Ended():
				return ErrEnded
			case <-c.free:
				item, err := c.item()
				if err != nil {
					return err
				}
				items = append(items, item)
			}
		}
		for more := true; more; {
			select {
			case <-c.free:
				item, err := c.item()
				if err != nil {
					return err
				}
				items = append(items, item)
			default:
				more = false
			}
		}
		if m := c.failed.Load(); m != nil {
			return fmt.Errorf("%w: %s", ErrAnswer, *m)
		}
		verdicts, err := c.rig.Dispatch(ctx, items)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		full := items[:0]
		for i, v := range verdicts {
			switch v {
			case schema.VerdictAccepted:
			case schema.VerdictFull: // an answer ends a moment before its room is free
				full = append(full, items[i])
			default:
				return fmt.Errorf("%w: verdict %s", ErrAnswer, v)
			}
		}
		if items = full; len(items) > 0 {
			select {
			case <-retry.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// item is the next request. Its prompt is made text and tokenized once, for what that costs; the result is not used, since
// random tokens come back as others.
func (c *closed) item() (schema.DispatchItem, error) {
	r := c.requests.Request(c.next)
	c.next++
	var text []byte
	var err error
	for _, id := range r.Prompt {
		if text, err = c.tokenizer.AppendPiece(text, id, false); err != nil {
			return schema.DispatchItem{}, err
		}
	}
	if _, err = c.tokenizer.Tokenize(string(text), true, false); err != nil {
		return schema.DispatchItem{}, err
	}
	id, err := schema.NewID(time.Now(), rand.Reader)
	if err != nil {
		return schema.DispatchItem{}, err
	}
	body, err := schema.Encode(&schema.Request{
		ID: schema.RequestID(id), Pool: pool, Model: c.model, Tenant: "t", Ingress: ingress, Kind: schema.KindCompletion, Received: 1,
		Prompt: r.Prompt, MaxTokens: int32(c.output), IgnoreEOS: true,
		Sampling: schema.Sampling{Temperature: 0.8, TopK: 40, TopP: 0.95, Seed: uint64(c.next)},
	})
	return schema.DispatchItem{Attempt: 1, Request: body}, err
}
