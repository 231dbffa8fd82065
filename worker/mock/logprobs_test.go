package mock_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
)

// The probabilities are those that the tokens are drawn with: all of them add up to 1.
func TestLogprobs(t *testing.T) {
	for _, hazard := range []float64{0, 0.0000001, 0.3, 0.999} {
		cfg := mock.FreeConfig()
		cfg.EndHazard = hazard
		m := open(t, cfg)
		if err := m.Start(0, &worker.Start{Prompt: []int32{5}, Logprobs: schema.MaxTopLogprobs + 1}); err != nil {
			t.Fatal(err)
		}
		rows := make([]batch.Row, 1)
		if err := m.Step(&batch.Batch{Entries: []batch.Entry{{Tokens: []int32{5}, Sample: true, Prefill: true}}}, rows); err != nil {
			t.Fatal(err)
		}
		l := rows[0].Logprobs
		word, end := -1.0, hazard
		for i, id := range l.Top {
			if id == mock.TurnEnd {
				if math.Abs(math.Exp(float64(l.TopLogprobs[i]))-end) > 1e-6 || i != 0 {
					t.Errorf("hazard %v: the end has %v in place %d", hazard, l.TopLogprobs[i], i)
				}
				continue
			}
			word = math.Exp(float64(l.TopLogprobs[i]))
		}
		words := float64(mock.Vocab - int(mock.TurnEnd) - 1)
		if len(l.Top) != schema.MaxTopLogprobs || math.Abs(words*word+end-1) > 1e-5 {
			t.Errorf("hazard %v: %d with the end %v, and words %v each", hazard, len(l.Top), end, word)
		}
		if !slices.IsSortedFunc(l.TopLogprobs, func(a, b float32) int { return cmp.Compare(b, a) }) {
			t.Errorf("hazard %v: %v", hazard, l.TopLogprobs)
		}
		want := float32(math.Log(word))
		if rows[0].Token == mock.TurnEnd {
			want = float32(math.Log(end))
		}
		if math.Abs(float64(l.Chosen[0]-want)) > 1e-4 {
			t.Errorf("hazard %v: chosen %v, want %v", hazard, l.Chosen[0], want)
		}
	}
}
