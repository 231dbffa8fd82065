package worker_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/mock"
)

// Each token comes with its log-probability, whatever the chunks, and the end of the turn without one.
func TestLogprobsGoWithTokens(t *testing.T) {
	r := start(t, func(_ *worker.Config, m *mock.Config) { m.EndHazard = 0.2 })
	words := float64(mock.Vocab - 259)
	for seed := range uint64(12) {
		req := newRequest(t, []int32{1, 2, int32(seed)}, 10)
		req.Logprobs, req.Sampling.Seed = 3, seed
		r.accept(req, 1)
		a := r.answer(req.ID, 1, 0)
		if a.fault != nil {
			t.Fatalf("%+v", a.fault)
		}
		told := len(a.ids)
		if a.finish.Reason == schema.FinishStop {
			told--
		}
		r.note(func() {
			for _, c := range r.chunks[req.ID] {
				n := 0
				if c.Logprobs != nil {
					n = len(c.Logprobs.Chosen)
				}
				if told -= n; n < len(c.IDs)-1 || n < len(c.IDs) && c.Finish == nil {
					t.Errorf("%d logprobs with %d tokens", n, len(c.IDs))
				}
				for i := range n {
					l := c.Logprobs
					if math.Abs(float64(l.Chosen[i])-math.Log(0.8/words)) > 1e-5 || l.N() != 2 || l.Top[2*i] != mock.TurnEnd || math.Abs(float64(l.TopLogprobs[2*i])-math.Log(0.2)) > 1e-6 {
						t.Errorf("%+v", l)
					}
				}
			}
		})
		if told != 0 {
			t.Errorf("%d tokens have none", told)
		}
	}
	// Who does not ask gets none.
	req := newRequest(t, []int32{1}, 4)
	r.accept(req, 1)
	r.answer(req.ID, 1, 0)
	r.note(func() {
		for _, c := range r.chunks[req.ID] {
			if c.Logprobs != nil {
				t.Errorf("%+v", c)
			}
		}
	})
}

// A grammar that an engine cannot keep to is no reason to write what comes.
func TestGrammarWithoutMeans(t *testing.T) {
	r := start(t)
	req, other := newRequest(t, []int32{1, 2}, 5), newRequest(t, []int32{1, 3}, 5)
	req.Grammar = `root ::= "{}"`
	for _, v := range r.dispatch(1, item(t, req, 1), item(t, other, 1)) {
		if v != schema.VerdictAccepted {
			t.Fatal(v)
		}
	}
	a := r.answer(req.ID, 1, 0)
	if a.fault == nil || a.fault.Code != schema.FailedEngine || !strings.Contains(a.fault.Message, worker.ErrUnsupported.Error()) || len(a.ids) != 0 {
		t.Errorf("%+v", a)
	}
	r.answer(other.ID, 1, 0).check(t, say(other, 1, 5), textOf(t, say(other, 1, 5)...), schema.FinishLength)
}
