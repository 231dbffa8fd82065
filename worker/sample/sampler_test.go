package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

// oracle does by sorting and dividing what draw does by selecting, and returns each token's probability.
func oracle(p schema.Sampling, logits []float32, prompt, output []int32) []float64 {
	l := make([]float64, len(logits))
	for i, x := range logits {
		l[i] = float64(x)
	}
	for id := range l {
		inPrompt, n := slices.Contains(prompt, int32(id)), 0
		for _, o := range output {
			if o == int32(id) {
				n++
			}
		}
		if r := float64(p.RepetitionPenalty); r != 0 && (inPrompt || n > 0) {
			if l[id] > 0 {
				l[id] /= r
			} else {
				l[id] *= r
			}
		}
		if n > 0 {
			l[id] -= float64(p.PresencePenalty) + float64(n)*float64(p.FrequencyPenalty)
		}
	}
	order := make([]int, len(l))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case l[a] > l[b]:
			return -1
		case l[a] < l[b]:
			return 1
		}
		return 0
	})
	prob := make([]float64, len(l))
	if p.Temperature == 0 {
		prob[order[0]] = 1
		return prob
	}
	if k := int(p.TopK); k > 0 && k < len(order) {
		order = order[:k]
	}
	softmax := func() {
		clear(prob)
		sum := 0.0
		for _, id := range order {
			prob[id] = math.Exp((l[id] - l[order[0]]) / float64(p.Temperature))
			sum += prob[id]
		}
		for _, id := range order {
			prob[id] /= sum
		}
	}
	softmax()
	if p.TopP > 0 && p.TopP < 1 {
		sum := 0.0
		for i, id := range order {
			if sum += prob[id]; sum >= float64(p.TopP) {
				order = order[:i+1]
				break
			}
		}
		softmax()
	}
	if p.MinP > 0 {
		for i, id := range order {
			if prob[id] < float64(p.MinP)*prob[order[0]] {
				order = order[:i]
				break
			}
		}
		softmax()
	}
	return prob
}

// gridLogits are distinct and coarse, so that no threshold of the parameters drawn below falls on a tie of rounding.
func gridLogits(t *rapid.T, n int) []float32 {
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(rapid.IntRange(-40, 40).Draw(t, "logit")) / 8
	}
	return logits
}

// Every draw is the winner of the race among the oracle's probabilities, with the same random numbers.
func TestDrawsAreTheOracles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(t, "vocab")
		logits := gridLogits(t, n)
		p := schema.Sampling{
			Temperature: rapid.SampledFrom([]float32{0, 0.3, 0.7, 1, 1.7, 30}).Draw(t, "temperature"),
			TopK:        rapid.SampledFrom([]int32{0, 1, 2, 5, 40, 100}).Draw(t, "top_k"),
			TopP:        rapid.SampledFrom([]float32{0, 1e-9, 0.31, 0.773, 0.951, 1}).Draw(t, "top_p"),
			MinP:        rapid.SampledFrom([]float32{0, 0.0531, 0.2077, 1}).Draw(t, "min_p"),
			Seed:        rapid.Uint64().Draw(t, "seed"),

			RepetitionPenalty: rapid.SampledFrom([]float32{0, 1, 1.25, 0.5}).Draw(t, "repetition"),
			PresencePenalty:   rapid.SampledFrom([]float32{0, 0.5, -1}).Draw(t, "presence"),
			FrequencyPenalty:  rapid.SampledFrom([]float32{0, 0.25, -2}).Draw(t, "frequency"),
		}
		id := rapid.Int32Range(0, int32(n)-1)
		prompt, output := rapid.SliceOfN(id, 0, 8).Draw(t, "prompt"), rapid.SliceOfN(id, 0, 8).Draw(t, "output")
		want := oracle(p, logits, prompt, output)

		var s Sampler
		var w Scratch
		split := rapid.IntRange(0, len(output)).Draw(t, "accepted_later")
		if err := s.Reset(p, prompt, output[:split]); err != nil {
			t.Fatal(err)
		}
		for _, o := range output[split:] {
			s.Accept(o)
		}
		for pos := range int32(16) {
			got, err := s.Sample(slices.Clone(logits), pos, &w)
			if err != nil {
				t.Fatal(err)
			}
			if p.Temperature > 0 {
				arrives := func(id int32) float64 { return -math.Log(newStream(p.Seed, pos).uniform(id)) / want[id] }
				for id := range int32(n) {
					if want[got] == 0 || arrives(id) < arrives(got)*(1-1e-4) {
						t.Fatalf("drew %d, the oracle draws %d of %v", got, id, want)
					}
				}
			} else if want[got] == 0 {
				t.Fatalf("chose %d of %v", got, want)
			}
		}
	})
}

// Flat and tied rows: all that can be kept are the lowest ids.
func TestTiesGoToTheLowestIDs(t *testing.T) {
	logits := make([]float32, 1000)
	var w Scratch
	for _, p := range []schema.Sampling{
		{Temperature: 1, TopK: 3}, {Temperature: 1, TopP: 0.0029}, {Temperature: 2, TopK: 500, TopP: 0.0059},
	} {
		seen := map[int32]int{}
		for pos := range int32(300) {
			var s Sampler
			if err := s.Reset(p, nil, nil); err != nil {
				t.Fatal(err)
			}
			id, err := s.Sample(logits, pos, &w)
			if err != nil {
				t.Fatal(err)
			}
			seen[id]++
		}
		if len(seen) != 3 || seen[0] < 50 || seen[1] < 50 || seen[2] < 50 {
			t.Errorf("%+v drew %v", p, seen)
		}
	}
	var s Sampler
	logits[7], logits[5] = 1, 1
	if id, err := s.Sample(logits, 0, &w); err != nil || id != 5 {
		t.Errorf("greedy chose %d, %v", id, err)
	}
}

// The histogram's path, for vocabularies above few: the last member is the one that sorting finds.
func TestLastIsWhatSortingFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(few+1, few+2000).Draw(t, "vocab")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		steps := rapid.SampledFrom([]float64{1, 3, 1000, 1e9}).Draw(t, "distinct")
		scale := rapid.SampledFrom([]float64{1e-20, 1, 1e30}).Draw(t, "scale")
		r := row{Scratch: &Scratch{some: make([]int32, n), weight: make([]float64, n)}, logits: make([]float32, n)}
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(i)
			r.logits[i] = float32(math.Floor(rng.Float64()*steps) / steps * scale)
			r.weight[i] = float64(rng.IntN(4)) // sums are exact
		}
		r.top = float64(slices.Max(r.logits))
		sorted := slices.Clone(ids)
		slices.SortFunc(sorted, func(a, b int32) int {
			if r.before(a, b) {
				return -1
			}
			return 1
		})
		for range 20 {
			k := rng.IntN(n)
			if got := r.last(ids, false, float64(k+1)); got != sorted[k] {
				t.Fatalf("member %d is %d, want %d", k, got, sorted[k])
			}
			target, sum, want := float64(1+rng.IntN(2*n)), 0.0, sorted[n-1]
			for _, id := range sorted {
				if sum += r.weight[id]; sum >= target {
					want = id
					break
				}
			}
			if got := r.last(ids, true, target); got != want {
				t.Fatalf("weight %v is reached with %d, want %d", target, got, want)
			}
		}
	})
}

func TestFrequenciesFollowProbabilities(t *testing.T) {
	logits := []float32{2, 0, 1, -1, 2}
	p := schema.Sampling{Temperature: 0.8, Seed: 42}
	want := oracle(p, logits, nil, nil)
	var s Sampler
	var w Scratch
	if err := s.Reset(p, nil, nil); err != nil {
		t.Fatal(err)
	}
	const n = 20000
	got := make([]float64, len(logits))
	for pos := range int32(n) {
		id, err := s.Sample(logits, pos, &w)
		if err != nil {
			t.Fatal(err)
		}
		got[id]++
	}
	chi2 := 0.0
	for i, w := range want {
		chi2 += (got[i] - n*w) * (got[i] - n*w) / (n * w)
	}
	if chi2 > 18.5 { // 4 degrees of freedom: one in a thousand seeds
		t.Fatalf("χ² %.1f: %v of %v", chi2, got, want)
	}
}

// What rounding changes in the logits seldom changes the draw, even of a flat distribution.
func TestDrawsAreRobust(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	logits, noisy := make([]float32, 4096), make([]float32, 4096)
	var s Sampler
	var w Scratch
	if err := s.Reset(schema.Sampling{Temperature: 1, Seed: 1}, nil, nil); err != nil {
		t.Fatal(err)
	}
	const n = 1000
	same := 0
	for pos := range int32(n) {
		for i := range logits {
			logits[i] = float32(rng.NormFloat64())
			noisy[i] = logits[i] + float32(rng.NormFloat64()*0.01)
		}
		a, err := s.Sample(logits, pos, &w)
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Sample(noisy, pos, &w)
		if err != nil {
			t.Fatal(err)
		}
		if a == b {
			same++
		}
	}
	t.Logf("%d of %d draws are the same", same, n)
	if same < n*97/100 {
		t.Errorf("%d of %d draws are the same", same, n)
	}
}

func TestRowsThatAreNotFinite(t *testing.T) {
	var w Scratch
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, row := range [][]float32{{}, {nan}, {1, nan, 2}, {inf, 1}, {1, -inf}} {
		for _, p := range []schema.Sampling{{}, {Temperature: 1}, {RepetitionPenalty: 2}} {
			var s Sampler
			if err := s.Reset(p, []int32{0}, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Sample(slices.Clone(row), 0, &w); !errors.Is(err, ErrLogits) {
				t.Errorf("%v with %+v: %v", row, p, err)
			}
		}
	}
	var s Sampler // penalties that overflow keep the row usable
	if err := s.Reset(schema.Sampling{RepetitionPenalty: 100}, []int32{0}, nil); err != nil {
		t.Fatal(err)
	}
	if id, err := s.Sample([]float32{-math.MaxFloat32, -2}, 0, &w); err != nil || id != 1 {
		t.Errorf("chose %d, %v", id, err)
	}
}

func TestResetChecksParameters(t *testing.T) {
	var s Sampler
	for _, p := range []schema.Sampling{{Temperature: -1}, {TopP: 2}, {MinP: float32(math.NaN())}, {TopK: -1}} {
		if err := s.Reset(p, nil, nil); !errors.Is(err, schema.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	// A sampler used again knows nothing of its last sequence.
	penalized := schema.Sampling{PresencePenalty: 2}
	if err := s.Reset(penalized, nil, []int32{0}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(penalized, nil, []int32{1}); err != nil {
		t.Fatal(err)
	}
	if id, err := s.Sample([]float32{1, 1.5}, 0, new(Scratch)); err != nil || id != 0 {
		t.Errorf("chose %d, %v", id, err)
	}
}

func TestExp(t *testing.T) {
	for x := 0.0; x > -50; x -= 0.00137 {
		if e := math.Abs(exp(x)/math.Exp(x) - 1); e > 4e-11 {
			t.Fatalf("exp(%v) is off by %v", x, e)
		}
	}
	if exp(0) != 1 || exp(math.Inf(-1)) != 0 || exp(-1e300) != 0 {
		t.Fatal("ends")
	}
}

func row152k() []float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 151936)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	return logits
}

// A row of Qwen2.5's vocabulary of 152 k with normal logits (a flat distribution: the slow case of top-p).
//
//	go test -bench Sample152k -benchmem ./worker/sample
func BenchmarkSample152k(b *testing.B) {
	logits := row152k()
	for _, c := range []struct {
		name string
		p    schema.Sampling
	}{
		{"greedy", schema.Sampling{}},
		{"temperature", schema.Sampling{Temperature: 1}},
		{"top-k40", schema.Sampling{Temperature: 1, TopK: 40}},
		{"top-p0.9", schema.Sampling{Temperature: 1, TopP: 0.9}},
		{"min-p0.05", schema.Sampling{Temperature: 1, MinP: 0.05}},
		{"all", schema.Sampling{Temperature: 0.7, TopK: 20, TopP: 0.8, MinP: 0.05, RepetitionPenalty: 1.0001, PresencePenalty: 0.0001}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var s Sampler
			w := new(Scratch)
			if err := s.Reset(c.p, logits32(500), logits32(100)); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Sample(logits, 0, w); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			pos := int32(0)
			for b.Loop() {
				pos++
				if _, err := s.Sample(logits, pos, w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func logits32(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i * 7)
	}
	return ids
}

func TestSampleDoesNotAllocate(t *testing.T) {
	logits := row152k()[:5000]
	var s Sampler
	var w Scratch
	if err := s.Reset(schema.Sampling{Temperature: 1, TopK: 100, TopP: 0.9, MinP: 0.01, FrequencyPenalty: 0.1}, nil, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sample(logits, 0, &w); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(50, func() {
		id, err := s.Sample(logits, 1, &w)
		if err != nil {
			t.Fatal(err)
		}
		s.Accept(id)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
