package workertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Suite says what to test.
type Suite struct {
	// New opens a backend that is closed at the end of the test: at least 8 sequences, 256 tokens of context and 1,024
	// cells.
	New func(testing.TB) worker.Backend
	// Logit is the backend's raw score of a token in a row of the step that it has just executed; nil if it has none. A
	// sequence that is computed in another way (in a batch, in chunks, resumed) gets the same tokens and, in Metamorphic, the
	// same scores to the last bit.
	Logit func(b worker.Backend, row int, token int32) float32
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	t.Run("alone or together", s.together)
	t.Run("whole or in chunks", s.chunks)
	t.Run("resumed", s.resumed)
	t.Run("seeds", s.seeds)
	t.Run("full cache", s.full)
	t.Run("cancelled sequences free their cells", s.cancel)
	t.Run("failed start", s.failedStart)
	t.Run("failed step leaves no trace", s.failedStep)
	t.Run("pieces", s.pieces)
}

// prompt returns n tokens, the same for the same seed.
func prompt(b worker.Backend, seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(min(b.Info().Vocab, 256)))
	}
	return ids
}

func requests(b worker.Backend, n int) []Request {
	reqs := make([]Request, n)
	for i := range reqs {
		reqs[i] = Request{Prompt: prompt(b, uint64(i), 3+7*i%40), MaxNew: 8 + i%5, IgnoreEOS: true, Sampling: schema.Sampling{Seed: uint64(i)}}
	}
	return reqs
}

// again runs requests that are forced to what they said before, in the way that the planner's configuration says, and
// fails the test where the backend chooses another token, or scores the same one otherwise.
func (s Suite) again(t *testing.T, what string, b worker.Backend, cfg batch.Config, reqs []Request) *Driver {
	t.Helper()
	d := NewDriver(t, b, cfg)
	all := 0
	d.OnRow = func(_ *batch.Entry, row, request, index int, token int32) {
		r := &reqs[request]
		forced := r.Forced[index]
		all++
		if token != forced {
			t.Errorf("%s: request %d says %d at %d, said %d alone", what, request, token, index, forced)
		} else if s.Logit != nil && r.logits != nil {
			if score := s.Logit(b, row, token); score != r.logits[index] {
				t.Errorf("%s: request %d scores %d with %v at %d, alone with %v", what, request, token, score, index, r.logits[index])
			}
		}
	}
	d.Add(t, reqs...)
	for d.Step(t) {
	}
	if all == 0 {
		t.Errorf("%s: no tokens", what)
	}
	return d
}

// alone runs each request by itself.
func alone(t *testing.T, b worker.Backend, reqs []Request) [][]int32 {
	t.Helper()
	out := make([][]int32, len(reqs))
	for i := range reqs {
		out[i] = Generate(t, b, reqs[i:i+1])[0]
	}
	return out
}

func force(reqs []Request, tokens [][]int32) []Request {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		reqs[i].Forced = tokens[i]
	}
	return reqs
}

func (s Suite) together(t *testing.T) {
	b := s.New(t)
	reqs := requests(b, b.Info().Sequences)
	reqs = force(reqs, alone(t, b, reqs))
	s.again(t, "together", b, PlannerConfig(b), reqs)
	same := make([]Request, 8)
	for i := range same {
		same[i] = reqs[3]
	}
	s.again(t, "in eight places at once", b, PlannerConfig(b), same)
}

func (s Suite) chunks(t *testing.T) {
	b := s.New(t)
	reqs := requests(b, 8)
	reqs = force(reqs, alone(t, b, reqs))
	for _, n := range []int{1, 3, 16} {
		cfg := PlannerConfig(b)
		cfg.ChunkTokens = n
		s.again(t, fmt.Sprintf("chunks of %d", n), b, cfg, reqs)
	}
}

func (s Suite) resumed(t *testing.T) {
	b := s.New(t)
	reqs := requests(b, 8)
	for i := range reqs { // greedy, with penalties that remember
		reqs[i].Sampling = schema.Sampling{Seed: uint64(i), RepetitionPenalty: 1.1, FrequencyPenalty: 0.5, PresencePenalty: 0.2}
	}
	for i, tokens := range alone(t, b, reqs) {
		k := 1 + i%6
		reqs[i].Output, reqs[i].MaxNew, reqs[i].Forced = tokens[:k], reqs[i].MaxNew-k, tokens[k:]
	}
	s.again(t, "resumed", b, PlannerConfig(b), reqs)
}

func (s Suite) seeds(t *testing.T) {
	b := s.New(t)
	r := Request{Prompt: prompt(b, 1, 10), MaxNew: 24, IgnoreEOS: true, Sampling: schema.Sampling{Temperature: 1, Seed: 5}}
	first := Generate(t, b, []Request{r})[0]
	if again := Generate(t, b, []Request{r})[0]; !slices.Equal(first, again) {
		t.Errorf("the same seed says %v, then %v", first, again)
	}
	r.Sampling.Seed = 6
	if other := Generate(t, b, []Request{r})[0]; slices.Equal(first, other) {
		t.Errorf("seeds 5 and 6 both say %v", first)
	}
}

// full runs sequences whose peaks take every page, to their ends, several times over.
func (s Suite) full(t *testing.T) {
	b := s.New(t)
	cfg := PlannerConfig(b)
	n := min(cfg.Sequences, 8)
	peak := min(cfg.KVPages/n*cfg.PageTokens, cfg.ContextTokens)
	d := NewDriver(t, b, cfg)
	for i := range 2 * n {
		d.Add(t, Request{Prompt: prompt(b, uint64(i), peak-16-i%3), MaxNew: 16 + i%3, IgnoreEOS: true})
	}
	for d.Step(t) {
	}
	for i := range 2 * n {
		if out, err := d.Output(i); err != nil || len(out) != 16+i%3 {
			t.Errorf("request %d has %d tokens, %v", i, len(out), err)
		}
	}
}

// cancel ends sequences in every state, and needs all of the cache again and again.
func (s Suite) cancel(t *testing.T) {
	b := s.New(t)
	cfg := PlannerConfig(b)
	cfg.ChunkTokens = 32
	longest := cfg.Longest()
	d := NewDriver(t, b, cfg)
	rng := rand.New(rand.NewPCG(1, 1))
	perRound := cfg.KVPages * cfg.PageTokens / longest
	for i := range 6 * perRound {
		d.Add(t, Request{Prompt: prompt(b, uint64(i), longest/2), MaxNew: longest / 2, IgnoreEOS: true})
	}
	for n := 0; d.Step(t); n++ {
		if n%3 == 2 {
			d.Cancel(t, rng.IntN(6*perRound))
		}
		if d.Done() > 4*perRound {
			for i := range 6 * perRound {
				d.Cancel(t, i)
			}
		}
	}
	if u := d.P.Usage(); u.Running != 0 || u.FreePages != cfg.KVPages {
		t.Fatalf("left over: %+v", u)
	}
	whole := Request{Prompt: prompt(b, 1, longest-4), MaxNew: 4, IgnoreEOS: true} // what is left of them would not let these in
	reqs := make([]Request, min(perRound, cfg.Sequences))
	for i := range reqs {
		reqs[i] = whole
	}
	for i, out := range Generate(t, b, reqs) {
		if len(out) != 4 {
			t.Errorf("request %d has %d tokens", i, len(out))
		}
	}
}

func (s Suite) failedStart(t *testing.T) {
	b := s.New(t)
	reqs := requests(b, 6)
	reqs = force(reqs, alone(t, b, reqs))
	reqs[2].Sampling.Temperature = -1
	d := s.again(t, "beside one that cannot start", b, PlannerConfig(b), reqs)
	if _, err := d.Output(2); !errors.Is(err, schema.ErrInvalid) {
		t.Errorf("bad sampler: %v", err)
	}
}

// failedStep gives the backend batches that it cannot execute: they change nothing.
func (s Suite) failedStep(t *testing.T) {
	b := s.New(t)
	reqs := requests(b, 2)
	reqs = force(reqs, alone(t, b, reqs))
	failed := 0
	s.again(t, "with failed steps between", failing{b, func(p *batch.Batch) {
		if len(p.Entries) < 2 || p.Entries[1].Prefill {
			return
		}
		// The first sequence as it is, beside a token that does not exist, and beside one that does not follow.
		bad := batch.Batch{Step: p.Step, Entries: slices.Clone(p.Entries)}
		bad.Entries[1].Tokens = []int32{int32(b.Info().Vocab)}
		if err := b.Step(&bad, make([]batch.Row, 2)); err == nil {
			t.Error("a token outside the vocabulary went through")
		}
		bad.Entries[1] = p.Entries[1]
		bad.Entries[1].Pos += 5
		if err := b.Step(&bad, make([]batch.Row, 2)); err == nil {
			t.Error("a gap in the positions went through")
		}
		failed++
	}}, PlannerConfig(b), reqs)
	if failed == 0 {
		t.Error("no step was tried")
	}
}

// failing is a backend that is given something to fail before each step.
type failing struct {
	worker.Backend
	before func(*batch.Batch)
}

func (f failing) Step(b *batch.Batch, rows []batch.Row) error {
	f.before(b)
	return f.Backend.Step(b, rows)
}

func (s Suite) pieces(t *testing.T) {
	b := s.New(t)
	ends := 0
	var buf []byte
	for id := range int32(b.Info().Vocab) {
		out, err := b.AppendPiece(buf[:0], id)
		if err != nil {
			t.Fatalf("piece of %d: %v", id, err)
		}
		if buf = out; b.EOG(id) {
			ends++
			if len(out) > 0 {
				t.Errorf("token %d ends an answer and shows %q", id, out)
			}
		}
	}
	if ends == 0 {
		t.Error("no token ends an answer")
	}
	if _, err := b.AppendPiece(nil, int32(b.Info().Vocab)); err == nil {
		t.Error("a piece outside the vocabulary")
	}
}
