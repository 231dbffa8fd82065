package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"

	"github.com/cadence-slo/cadence/bench/record"
)

// Vocabulary lists the token ids that prompts are made of, without those that steer a model (end of text, turns). It is
// not changed.
type Vocabulary []int32

// NewVocabulary returns the ids in [0, size) for which avoid is false, or ErrSpec if fewer than two are left; a nil avoid
// keeps all.
func NewVocabulary(size int, avoid func(id int32) bool) (Vocabulary, error) {
	v := make(Vocabulary, 0, max(size, 0))
	for id := range int32(max(size, 0)) {
		if avoid == nil || !avoid(id) {
			v = append(v, id)
		}
	}
	if len(v) < 2 {
		return nil, fmt.Errorf("%w: %d of %d token ids can be used, at least 2 are needed", ErrSpec, len(v), size)
	}
	return v, nil
}

// Request is one request.
type Request struct {
	// Index is its place in the workload, from 0.
	Index int
	// Prompt holds token ids of the vocabulary; it is the caller's.
	Prompt []int32
	// System is the system prompt that the prompt begins with, -1 for none; SystemTokens is its length.
	System, SystemTokens int
	// Cap is the max_tokens that a client would send who does not know how long the answer is; Output is how long it is.
	// 1 ≤ Output ≤ Cap.
	Cap, Output int
	// Tenant is who sends it, Class the key of the objective that it is held against, Kind what it is like; each is empty
	// where the workload has none.
	Tenant, Class, Kind string
}

// Generator draws requests. It is safe for concurrent use.
type Generator struct {
	spec    Spec
	vocab   Vocabulary
	seed    uint64
	systems [][]int32
}

// Streams of randomness that do not touch each other.
const (
	streamRequest = 0x72657175657374
	streamSystem  = 0x73797374656d
)

// New returns a generator, or ErrSpec. The system prompts depend on the seed too.
func New(spec *Spec, vocab Vocabulary, seed uint64) (*Generator, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if len(vocab) < 2 {
		return nil, fmt.Errorf("%w: a vocabulary of %d token ids, at least 2 are needed", ErrSpec, len(vocab))
	}
	g := &Generator{spec: *spec, vocab: vocab, seed: seed}
	if spec.SharedRatio > 0 {
		for i := range spec.SystemPrompts {
			rng := source(seed, streamSystem, uint64(i))
			g.systems = append(g.systems, g.tokens(rng, nil, spec.SystemTokens.draw(rng)))
		}
	}
	return g, nil
}

// Reseed returns a generator whose system prompts are g's and whose other tokens and lengths follow another seed: new
// requests to servers that have seen the shared part.
func (g *Generator) Reseed(seed uint64) *Generator {
	out := *g
	out.seed = seed
	return &out
}

// Name implements Source.
func (g *Generator) Name() string { return g.spec.Name }

// Describe implements Source: the spec and the seed. It does not hold the vocabulary, which is the model's.
func (g *Generator) Describe() json.RawMessage {
	return describe(struct {
		Spec *Spec  `json:"spec"`
		Seed uint64 `json:"seed"`
	}{&g.spec, g.seed})
}

// SLOs implements Source.
func (g *Generator) SLOs() map[string]record.SLO { return maps.Clone(g.spec.SLOs) }

// describe encodes what always can be.
func describe(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this package have no value that JSON lacks
	}
	return b
}

// Spec is what the generator was made with.
func (g *Generator) Spec() Spec { return g.spec }

// Request returns the i-th request, i ≥ 0.
func (g *Generator) Request(i int) Request {
	rng := source(g.seed, streamRequest, uint64(i))
	r := Request{Index: i, System: -1}
	// Every request takes the same draws in the same order, so that a change of one key leaves the others' draws alone.
	shares, which := rng.Float64(), rng.IntN(max(1, len(g.systems)))
	r.Cap, r.Output = g.spec.Output.draw(rng)
	if shares < g.spec.SharedRatio {
		system := g.systems[which]
		r.System, r.SystemTokens = which, len(system)
		n := g.spec.TailTokens.draw(rng)
		r.Prompt = append(make([]int32, 0, len(system)+n), system...)
		r.Prompt = g.tokens(rng, r.Prompt, n)
		return r
	}
	r.Prompt = g.tokens(rng, nil, g.spec.UniqueTokens.draw(rng))
	return r
}

// tokens appends n random token ids.
func (g *Generator) tokens(rng *rand.Rand, dst []int32, n int) []int32 {
	for range n {
		dst = append(dst, g.vocab[rng.IntN(len(g.vocab))])
	}
	return dst
}

// source is the randomness of one thing. Neighbouring numbers are mixed, so that their streams have nothing in common.
func source(seed, stream, i uint64) *rand.Rand {
	return rand.New(rand.NewPCG(mix(seed^stream), mix(seed+stream+mix(i))))
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (r Range) draw(rng *rand.Rand) int { return r.Min + rng.IntN(r.Max-r.Min+1) }

// draw returns a cap and the length of the answer under it.
func (o *Output) draw(rng *rand.Rand) (limit, realised int) {
	if o.Cap == nil {
		return o.Fixed, o.Fixed
	}
	x := math.Round(math.Exp(o.Cap.Mu + o.Cap.Sigma*rng.NormFloat64()))
	limit = int(min(max(x, float64(o.Cap.Min)), float64(o.Cap.Max)))
	return limit, o.realised(limit)
}

// realised is the length of an answer whose cap is limit.
func (o *Output) realised(limit int) int {
	return min(limit, max(o.RealisedMin, int(math.Round(o.RealisedRatio*float64(limit)))))
}
