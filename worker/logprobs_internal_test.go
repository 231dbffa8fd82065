package worker

import (
	"testing"

	"github.com/cadence-slo/cadence/schema"
)

// What is kept to be sent again is no memory that the publisher uses again.
func TestKeptLogprobsAreCopies(t *testing.T) {
	var b bundle
	b.ids = append(b.ids, 7)
	b.logprobs.Append(&schema.Logprobs{Chosen: []float32{-1}, Top: schema.Tokens{7, 8}, TopLogprobs: []float32{-1, -2}})
	var u unconfirmed
	u.keep(1, "i1", &schema.Chunk{IDs: b.ids, Logprobs: &b.logprobs})
	b.reset()
	if len(b.logprobs.Chosen) != 0 || len(b.ids) != 0 {
		t.Fatalf("%+v", b)
	}
	b.logprobs.Append(&schema.Logprobs{Chosen: []float32{-9}, Top: schema.Tokens{1, 2}, TopLogprobs: []float32{-9, -9}})
	l := u.all()[0].chunk.Logprobs
	if len(l.Chosen) != 1 || l.Chosen[0] != -1 || l.Top[1] != 8 || l.TopLogprobs[1] != -2 {
		t.Errorf("%+v", l)
	}
}
