package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/schema"
)

// set allows its members, and counts what it was asked about.
type set struct {
	of    map[int32]bool
	asked int
	err   error
}

func (s *set) Allowed(ids []int32, ok []bool) error {
	s.asked += len(ids)
	for i, id := range ids {
		ok[i] = s.of[id]
	}
	return s.err
}

// The token is the one that a row without the others gives, however many candidates had to be asked about.
func TestSampleAllowedAsIfOthersWereNotThere(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const vocab = 5000
	var w Scratch
	most := 0
	for round := range 400 {
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(rng.NormFloat64() * 3)
		}
		p := schema.Sampling{Seed: rng.Uint64(), Temperature: []float32{0, 1, 0.7}[round%3]}
		if round%5 == 0 {
			p.PresencePenalty = 1
		}
		var s Sampler
		if err := s.Reset(p, nil, []int32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		f := &set{of: map[int32]bool{}}
		only := make([]float32, vocab)
		for i := range only {
			only[i] = -1e30
		}
		for range 1 + rng.IntN(1<<rng.IntN(11)) {
			id := int32(rng.IntN(vocab))
			f.of[id], only[id] = true, logits[id]
		}
		before := slices.Clone(logits)
		pos := int32(round)
		got, err := s.SampleAllowed(logits, pos, &w, f)
		if err != nil || !f.of[got] {
			t.Fatalf("round %d: %d, %v", round, got, err)
		}
		if !slices.Equal(logits, before) {
			t.Fatalf("round %d: the logits were changed", round)
		}
		want, err := s.Sample(only, pos, &w)
		if err != nil || got != want {
			t.Errorf("round %d: %d, alone %d, %v", round, got, want, err)
		}
		most = max(most, f.asked)
	}
	if most < vocab {
		t.Errorf("never asked about all: at most %d", most)
	}
}

// What is chosen without a filter and is allowed stays chosen, and nothing else is asked about.
func TestSampleAllowedAsksAboutOne(t *testing.T) {
	logits := row152k()[:20000]
	var s Sampler
	var w Scratch
	for _, p := range []schema.Sampling{{}, {Temperature: 1}, {Temperature: 1, TopK: 40, TopP: 0.9, MinP: 0.01}} {
		if err := s.Reset(p, nil, nil); err != nil {
			t.Fatal(err)
		}
		want, err := s.Sample(logits, 7, &w)
		if err != nil {
			t.Fatal(err)
		}
		f := &set{of: map[int32]bool{want: true}}
		if got, err := s.SampleAllowed(logits, 7, &w, f); err != nil || got != want || f.asked != 1 {
			t.Errorf("%+v: %d, want %d, asked about %d, %v", p, got, want, f.asked, err)
		}
	}
}

// The parameters keep what they keep without the filter; what they would never keep comes only if nothing else is allowed.
func TestSampleAllowedWithinParameters(t *testing.T) {
	logits := []float32{5, 4.5, 4, 0, -1, -2}
	var w Scratch
	for seed := range uint64(200) {
		var s Sampler
		if err := s.Reset(schema.Sampling{Temperature: 1, TopK: 3, Seed: seed}, nil, nil); err != nil {
			t.Fatal(err)
		}
		got, err := s.SampleAllowed(logits, 0, &w, &set{of: map[int32]bool{2: true, 3: true, 5: true}})
		if err != nil || got != 2 {
			t.Fatalf("seed %d: %d, %v", seed, got, err)
		}
		got, err = s.SampleAllowed(logits, 0, &w, &set{of: map[int32]bool{3: true, 5: true}})
		if err != nil || got != 3 && got != 5 {
			t.Fatalf("seed %d: %d, %v", seed, got, err)
		}
	}
}

func TestSampleAllowedErrors(t *testing.T) {
	broken := errors.New("broken")
	var w Scratch
	for _, temperature := range []float32{0, 1} {
		var s Sampler
		if err := s.Reset(schema.Sampling{Temperature: temperature}, nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.SampleAllowed([]float32{1, 2, 3}, 0, &w, &set{}); !errors.Is(err, ErrNoToken) {
			t.Errorf("nothing allowed: %v", err)
		}
		if _, err := s.SampleAllowed([]float32{1, 2, 3}, 0, &w, &set{err: broken}); !errors.Is(err, broken) {
			t.Errorf("a broken filter: %v", err)
		}
		if _, err := s.SampleAllowed(nil, 0, &w, &set{}); !errors.Is(err, ErrLogits) {
			t.Errorf("no logits: %v", err)
		}
	}
}

// Log-probabilities are the logarithm of a plain softmax of the logits that came, penalties or not.
func TestLogprobsAsNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var w Scratch
	for round := range 60 {
		logits := make([]float32, 1+rng.IntN(3000))
		for i := range logits {
			logits[i] = float32(rng.NormFloat64()*4) + float32(round) // some are equal below
			if i > 0 && i%7 == 0 {
				logits[i] = logits[i-1]
			}
		}
		sum, top := 0.0, float64(slices.Max(logits))
		for _, l := range logits {
			sum += math.Exp(float64(l) - top)
		}
		naive := func(id int32) float64 { return float64(logits[id]) - top - math.Log(sum) }
		var s Sampler
		if err := s.Reset(schema.Sampling{Temperature: 0.8, RepetitionPenalty: 1.3, Seed: uint64(round)}, []int32{0}, []int32{0, 1}); err != nil {
			t.Fatal(err)
		}
		chosen, err := s.Sample(logits, 0, &w)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 5, 20, len(logits)} {
			var l schema.Logprobs
			AppendLogprobs(&l, logits, chosen, n, &w)
			if len(l.Chosen) != 1 || len(l.Top) != min(n, len(logits)) || len(l.TopLogprobs) != len(l.Top) {
				t.Fatalf("%d of %d: %+v", n, len(logits), l)
			}
			if d := math.Abs(float64(l.Chosen[0]) - naive(chosen)); d > 1e-6*(1-naive(chosen)) {
				t.Errorf("chosen: %v, naive %v", l.Chosen[0], naive(chosen))
			}
			total := 0.0
			for i, id := range l.Top {
				if d := math.Abs(float64(l.TopLogprobs[i]) - naive(id)); d > 1e-6*(1-naive(id)) {
					t.Errorf("token %d: %v, naive %v", id, l.TopLogprobs[i], naive(id))
				}
				total += math.Exp(float64(l.TopLogprobs[i]))
				if i > 0 {
					before := l.Top[i-1]
					if logits[before] < logits[id] || logits[before] == logits[id] && before > id {
						t.Errorf("token %d before %d", before, id)
					}
				}
			}
			if n == len(logits) {
				if math.Abs(total-1) > 1e-6 {
					t.Errorf("probabilities of all %d add up to %v", n, total)
				}
				if !slices.Contains(l.Top, chosen) {
					t.Errorf("%d is not among all", chosen)
				}
			}
		}
	}
}

func TestLogprobsOfExtremes(t *testing.T) {
	var l schema.Logprobs
	AppendLogprobs(&l, []float32{-math.MaxFloat32, math.MaxFloat32, 0}, 0, 3, new(Scratch))
	if l.Chosen[0] != schema.MinLogprob || !slices.Equal(l.Top, schema.Tokens{1, 2, 0}) || l.TopLogprobs[0] != 0 || l.TopLogprobs[2] != schema.MinLogprob {
		t.Errorf("%+v", l)
	}
}

func TestLogprobsDoNotAllocate(t *testing.T) {
	logits := row152k()[:5000]
	var w Scratch
	var l schema.Logprobs
	AppendLogprobs(&l, logits, 1, 20, &w)
	if n := testing.AllocsPerRun(50, func() {
		l.Reset()
		AppendLogprobs(&l, logits, 1, 20, &w)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// What log-probabilities cost in a vocabulary of 152 k.
//
//	go test -run xxx -bench Logprobs152k -benchmem ./worker/sample
func BenchmarkLogprobs152k(b *testing.B) {
	logits := row152k()
	var w Scratch
	var l schema.Logprobs
	b.ReportAllocs()
	for b.Loop() {
		l.Reset()
		AppendLogprobs(&l, logits, 1, 20, &w)
	}
}
