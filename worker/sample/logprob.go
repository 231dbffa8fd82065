package sample

import (
	"math"

	"github.com/cadence-slo/cadence/schema"
)

// AppendLogprobs appends to dst the log-probability of a row's chosen token and the n most probable tokens (all, if there
// are fewer) with theirs. They are of the model's distribution, the softmax of its logits; the row is finite, as Sample
// leaves it. It reads the row once.
func AppendLogprobs(dst *schema.Logprobs, logits []float32, chosen int32, n int, w *Scratch) {
	top, sum := float64(logits[0]), 0.0 // sum of e^(logit-top)
	w.ranking.reset(min(n, len(logits)))
	floor := math.Inf(-1)
	for id, l := range logits {
		x := float64(l)
		if x > top {
			sum *= exp(top - x)
			top = x
		}
		sum += exp(x - top)
		if n > 0 && x > floor {
			w.ranking.add(int32(id), x)
			if len(w.ranking.ids) == w.ranking.n {
				floor = w.ranking.score[0] // an equal one that comes later has a higher id
			}
		}
	}
	norm := math.Log(sum)
	logprob := func(id int32) float32 {
		return float32(min(0, max(schema.MinLogprob, float64(logits[id])-top-norm)))
	}
	dst.Chosen = append(dst.Chosen, logprob(chosen))
	for _, id := range w.ranking.sorted() {
		dst.Top = append(dst.Top, id)
		dst.TopLogprobs = append(dst.TopLogprobs, logprob(id))
	}
}
