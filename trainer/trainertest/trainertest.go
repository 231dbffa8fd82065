// Package trainertest makes events of requests whose latencies a model can learn, for tests.
package trainertest

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/schema"
)

const (
	// Fingerprint is of the engine of all requests, in Pool.
	Fingerprint = "mock/1"
	Pool        = "p"
	// PerRound is how many requests a round has; of a hundred one is left by its client, and one fails.
	PerRound = 400
)

// bits is randomness for ids.
type bits struct{ rng *rand.Rand }

func (b bits) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b.rng.Uint32())
	}
	return len(p), nil
}

// Round are the events of n requests that arrived within four minutes of the round with a number, from's being 0. Their residual goes with what waits, bent, and scatters
// by so much.
func Round(t testing.TB, from time.Time, number, n int, scatter float64) []*schema.Event {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(number), 0x726f756e64))
	begin := from.Add(time.Duration(number) * 10 * time.Minute)
	var all []*schema.Event
	shift := [4]float64{}
	for i := range shift {
		shift[i] = 0.02 * rng.NormFloat64()
	}
	for i := range n {
		at := begin.Add(time.Duration(i) * 4 * time.Minute / time.Duration(n))
		text, err := schema.NewID(at, bits{rng})
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, feature.Count)
		for f := range x {
			x[f] = rng.Float32()
		}
		x[feature.PromptTokens], x[feature.Waiting] = float32(1+rng.IntN(1000)), 3*rng.Float32()
		x[feature.PrefillTokens] = x[feature.PromptTokens] * rng.Float32()
		x[feature.CachedTokens] = x[feature.PromptTokens] - x[feature.PrefillTokens]
		wait := float64(x[feature.Waiting])
		physics := time.Duration((0.5 + 2*wait) * 1e9)
		label := 0.2*wait*wait + shift[i*4/n] + scatter*(0.05+0.05*wait)*rng.NormFloat64()
		event := func(typ schema.Type) *schema.Event {
			return &schema.Event{Type: typ, Time: at.UnixNano(), Source: "test", Request: schema.RequestID(text), Pool: "p", Model: "m", Tenant: "t", Ingress: "i",
				Kind: schema.KindChat, RequestSeq: uint64(i + 1)}
		}
		admitted, dispatched, delivered := event(schema.Admitted), event(schema.Dispatched), event(schema.Delivered)
		admitted.PromptTokens, admitted.MaxTokens, admitted.Physics, admitted.Features, admitted.Propensity = int32(x[feature.PromptTokens]), 64, physics, x, 1
		if i%2 == 0 {
			admitted.Class = schema.Guaranteed
		}
		dispatched.Attempt, dispatched.Worker = 1, "w1"
		delivered.E2E, delivered.OutputTokens, delivered.Reason = time.Duration(float64(physics)*math.Exp(label)), int32(1+rng.IntN(64)), string(schema.OutcomeComplete)
		switch i % 100 {
		case 17:
			delivered.Reason = string(schema.OutcomeDisconnected)
		case 18:
			delivered.Reason, delivered.Message = string(schema.OutcomeError), string(schema.FailedEngine)
		}
		all = append(all, admitted, dispatched, delivered)
	}
	return all
}

// Rounds are several of them, of PerRound requests each, behind the event that a worker is up.
func Rounds(t testing.TB, from time.Time, first, count int, scatter float64) []*schema.Event {
	all := []*schema.Event{{Type: schema.WorkerUp, Time: from.UnixNano(), Source: "w1", Worker: "w1", Pool: "p", Fingerprint: Fingerprint}}
	for i := range count {
		all = append(all, Round(t, from, first+i, PerRound, scatter)...)
	}
	return all
}
