package openai

import (
	"fmt"

	"github.com/cadence-slo/cadence/schema"
)

// Limits bounds what a request body may hold. They protect the ingress; what the model can take (its context) is
// checked after tokenizing, by OutputRoom.
type Limits struct {
	// BodyBytes is the largest body, ≥ 1. A larger one gets 413.
	BodyBytes int
	// Depth is the deepest nesting of arrays and objects, ≥ 4 (a chat needs four).
	Depth int
	// Messages is the largest number of messages of a chat, ≥ 1.
	Messages int
	// PromptTokens is the largest number of token ids given as a prompt, ≥ 1.
	PromptTokens int
	// Stops is the largest number of stop strings, in [1, schema.MaxStops]; OpenAI's is 4.
	Stops int
	// StopBytes is the longest stop string, ≥ 1.
	StopBytes int
}

// DefaultLimits returns OpenAI's limits where it has some, and sizes around a NATS message of 1 MiB elsewhere.
func DefaultLimits() Limits {
	return Limits{BodyBytes: 1 << 20, Depth: 64, Messages: 4096, PromptTokens: 131072, Stops: 4, StopBytes: 1024}
}

// Validate returns an error that names the key and what it may be.
func (l Limits) Validate() error {
	for _, k := range []struct {
		name string
		v    int
		min  int
	}{
		{"body_bytes", l.BodyBytes, 1},
		{"depth", l.Depth, 4},
		{"messages", l.Messages, 1},
		{"prompt_tokens", l.PromptTokens, 1},
		{"stops", l.Stops, 1},
		{"stop_bytes", l.StopBytes, 1},
	} {
		if k.v < k.min {
			return fmt.Errorf("openai: limit %s is %d; allowed: an integer ≥ %d", k.name, k.v, k.min)
		}
	}
	if l.Stops > schema.MaxStops {
		return fmt.Errorf("openai: limit stops is %d; allowed: an integer in [1, %d]", l.Stops, schema.MaxStops)
	}
	return nil
}
