package overhead

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/worker/mock"
)

// prompts is how many different prompts are sent; they take turns.
const prompts = 256

// prompt is one prompt in both forms.
type prompt struct {
	tokens []int32
	body   []byte // of POST /v1/completions
}

// makePrompts makes prompts that the mock's tokenizer takes for exactly so many tokens.
func makePrompts(o *Options) ([]prompt, error) {
	rng := rand.New(rand.NewPCG(o.Seed, 0x70726f6d707473))
	// Words of two syllables are one token each.
	out := make([]prompt, prompts)
	for i := range out {
		var text strings.Builder
		for range o.PromptTokens {
			text.WriteByte(' ')
			text.WriteString(load.Word(105 + rng.Int32N(11025)))
		}
		tokens, err := mock.Tokenizer{}.Tokenize(text.String(), true, true)
		if err != nil {
			return nil, err
		}
		if len(tokens) != o.PromptTokens {
			return nil, fmt.Errorf("overhead: a prompt of %d words has %d tokens", o.PromptTokens, len(tokens))
		}
		body, err := json.Marshal(map[string]any{
			"model": "mock", "prompt": text.String(), "max_tokens": o.OutputTokens, "seed": i,
			"stream": true, "stream_options": map[string]any{"include_usage": true},
		})
		if err != nil {
			return nil, err
		}
		out[i] = prompt{tokens, body}
	}
	return out, nil
}

// request is the i-th request of a measurement.
func request(ps []prompt, name string, i int) *load.Request {
	return &load.Request{Path: "/v1/completions", Body: ps[i%len(ps)].body, ClientID: fmt.Sprintf("%s-%d", name, i)}
}
