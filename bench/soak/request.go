package soak

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// Lengths of requests, in tokens.
const (
	longest   = 512 // prompt and output together
	maxSystem = 200
	maxTail   = 60
	maxOutput = 200
)

// pool and ingress are names on the wire.
const (
	pool    = "soak"
	ingress = schema.IngressID("soak")
)

// request is a request that has not ended, guarded by load.mu.
type request struct {
	req     schema.Request
	body    []byte
	budget  time.Duration
	attempt uint32  // the newest one
	resume  []int32 // what earlier attempts sent
	got     []int32 // what the newest attempt sent after that
	text    []byte  // with got
	// What happens to it once an attempt has sent so many tokens; -1: nothing.
	cancelAt, replaceAt int
	cancelled           bool
	// sent: the worker owns the newest attempt.
	sent bool
}

// item is the newest attempt as the worker gets it.
func (r *request) item() schema.DispatchItem {
	return schema.DispatchItem{Attempt: r.attempt, Budget: r.budget, Resume: r.resume, Request: r.body}
}

// replace begins the next attempt, which goes on after what this one has sent.
func (r *request) replace() {
	r.attempt++
	r.resume = append(append(make([]int32, 0, len(r.resume)+len(r.got)), r.resume...), r.got...)
	r.got, r.text, r.replaceAt, r.sent = nil, nil, -1, false
}

// source draws requests. One goroutine owns it.
type source struct {
	rng     *mathrand.Rand
	vocab   int
	model   string
	systems [][]int32
	before  []int32 // a prompt that was asked lately
}

func newSource(seed uint64, vocab int, model string) *source {
	s := &source{rng: mathrand.New(mathrand.NewPCG(seed, 0x736f616b)), vocab: vocab, model: model}
	for range 6 {
		s.systems = append(s.systems, s.tokens(16+s.rng.IntN(maxSystem-15)))
	}
	return s
}

func (s *source) tokens(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(s.rng.IntN(s.vocab))
	}
	return out
}

// next draws a request: most begin with a part of a system prompt, some repeat an earlier prompt, or whole pages of it.
func (s *source) next() (*request, error) {
	id, err := schema.NewID(time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	rng := s.rng
	var prompt []int32
	if rng.IntN(5) > 0 {
		system := s.systems[rng.IntN(len(s.systems))]
		if rng.IntN(3) == 0 {
			system = system[:1+rng.IntN(len(system))]
		}
		prompt = append(prompt, system...)
	}
	if len(prompt) == 0 || rng.IntN(6) > 0 {
		prompt = append(prompt, s.tokens(1+rng.IntN(maxTail))...)
	}
	switch {
	case s.before == nil || rng.IntN(8) == 0:
		s.before = prompt
	case rng.IntN(8) == 0:
		prompt = s.before
		if n := len(prompt) / 16 * 16; n > 0 && rng.IntN(2) == 0 {
			prompt = prompt[:n]
		}
	}
	r := &request{attempt: 1, cancelAt: -1, replaceAt: -1}
	r.req = schema.Request{
		ID: schema.RequestID(id), Pool: pool, Model: s.model, Tenant: []string{"a", "b", "c"}[rng.IntN(3)], Ingress: ingress,
		Kind: schema.KindChat, Class: schema.BestEffort, Received: 1, Prompt: prompt, MaxTokens: int32(1 + rng.IntN(maxOutput)),
		IgnoreEOS: rng.IntN(2) == 0, Sampling: schema.Sampling{Seed: rng.Uint64()},
	}
	if rng.IntN(4) == 0 {
		r.req.Class = schema.Guaranteed
	}
	if rng.IntN(2) == 0 {
		r.req.Sampling.Temperature, r.req.Sampling.TopP, r.req.Sampling.TopK = 0.8, 0.95, 40
	}
	if rng.IntN(3) == 0 {
		r.budget = time.Duration(1+rng.IntN(5000)) * time.Millisecond
	}
	switch rng.IntN(10) {
	case 0:
		r.cancelAt = 0 // perhaps before it is in a step
	case 1, 2:
		r.cancelAt = rng.IntN(int(r.req.MaxTokens))
	case 3:
		r.replaceAt = rng.IntN(int(r.req.MaxTokens))
	}
	r.body, err = schema.Encode(&r.req)
	return r, err
}
