package mock

import (
	"math"

	"github.com/cadence-slo/cadence/schema"
)

// appendLogprobs appends what next draws from: the end of the turn by the hazard, otherwise any word alike.
func appendLogprobs(dst *schema.Logprobs, token int32, n int, hazard float64) {
	clamp := func(p float64) float32 { return float32(min(0, max(schema.MinLogprob, math.Log(p)))) }
	end, word := clamp(hazard), clamp((1-hazard)/float64(words))
	of := func(token int32) float32 {
		if token == TurnEnd {
			return end
		}
		return word
	}
	dst.Chosen = append(dst.Chosen, of(token))
	for i := range int32(n) {
		top := firstWord + i
		if end > word {
			if top--; i == 0 {
				top = TurnEnd
			}
		}
		dst.Top, dst.TopLogprobs = append(dst.Top, top), append(dst.TopLogprobs, of(top))
	}
}
