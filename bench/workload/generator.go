package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

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
	kinds   []Kind
	tenants []Tenant
	systems [][][]int32 // by kind
	vocab   Vocabulary

	seed, systemSeed uint64
}

// Streams of randomness that do not touch each other.
const (
	streamRequest = 0x72657175657374
	streamSystem  = 0x73797374656d
	streamMix     = 0x6d6978
	streamBlock   = 0x626c6f636b
)

// New returns a generator, or ErrSpec. The system prompts depend on the seed too.
func New(spec *Spec, vocab Vocabulary, seed uint64) (*Generator, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if len(vocab) < 2 {
		return nil, fmt.Errorf("%w: a vocabulary of %d token ids, at least 2 are needed", ErrSpec, len(vocab))
	}
	g := &Generator{spec: *spec, kinds: spec.mix(), tenants: spec.senders(), vocab: vocab, seed: seed, systemSeed: seed}
	number := uint64(0)
	for _, k := range g.kinds {
		var systems [][]int32
		if k.SharedRatio > 0 {
			for range k.SystemPrompts {
				rng := source(seed, streamSystem, number)
				systems = append(systems, vocab.draw(rng, nil, k.SystemTokens.draw(rng)))
				number++
			}
		}
		g.systems = append(g.systems, systems)
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

// drawn is all that a generator was made with but the vocabulary, which is the model's.
type drawn struct {
	Spec       *Spec   `json:"spec"`
	Seed       uint64  `json:"seed"`
	SystemSeed *uint64 `json:"system_seed,omitempty"` // nil: Seed
}

// generator is the one that was described.
func (d *drawn) generator(vocab Vocabulary) (*Generator, error) {
	if d.SystemSeed == nil {
		return New(d.Spec, vocab, d.Seed)
	}
	g, err := New(d.Spec, vocab, *d.SystemSeed)
	if err != nil {
		return nil, err
	}
	return g.Reseed(d.Seed), nil
}

// Describe implements Source: the spec and the seed.
func (g *Generator) Describe() json.RawMessage {
	d := drawn{Spec: &g.spec, Seed: g.seed}
	if g.systemSeed != g.seed {
		d.SystemSeed = &g.systemSeed
	}
	return describe(&d)
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
	r := Request{Index: i, System: -1}
	kind, tenant := g.mix(i)
	k, t := &g.kinds[kind], &g.tenants[tenant]
	r.Kind, r.Tenant, r.Class = k.Name, t.Name, class(k, t)
	rng := source(g.seed, streamRequest, uint64(i))
	// Every request takes the same draws in the same order, so that a change of one key leaves the others' draws alone.
	systems := g.systems[kind]
	shares, which := rng.Float64(), rng.IntN(max(1, len(systems)))
	r.Cap, r.Output = k.Output.draw(rng)
	if shares < k.SharedRatio {
		system := systems[which]
		r.System, r.SystemTokens = which, len(system)
		for _, earlier := range g.systems[:kind] {
			r.System += len(earlier)
		}
		n := k.TailTokens.draw(rng)
		r.Prompt = append(make([]int32, 0, len(system)+n), system...)
		r.Prompt = g.vocab.draw(rng, r.Prompt, n)
		return r
	}
	r.Prompt = g.vocab.draw(rng, nil, k.UniqueTokens.draw(rng))
	return r
}

// mix draws kind and tenant of the i-th request, from randomness of their own.
func (g *Generator) mix(i int) (kind, tenant int) {
	if len(g.kinds) == 1 && len(g.tenants) == 1 {
		return 0, 0
	}
	rng := source(g.seed, streamMix, uint64(i))
	return pick(rng, g.kinds, func(k *Kind) float64 { return k.Share }), pick(rng, g.tenants, func(t *Tenant) float64 { return t.Share })
}

// pick draws an index of of with probability in proportion to its share.
func pick[T any](rng *rand.Rand, of []T, share func(*T) float64) int {
	sum := 0.0
	for i := range of {
		sum += share(&of[i])
	}
	x := rng.Float64() * sum
	for i := range of {
		if x -= share(&of[i]); x < 0 {
			return i
		}
	}
	return len(of) - 1 // rounding
}

// draw appends n random token ids.
func (v Vocabulary) draw(rng *rand.Rand, dst []int32, n int) []int32 {
	dst = slices.Grow(dst, n)
	for range n {
		dst = append(dst, v[rng.IntN(len(v))])
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
