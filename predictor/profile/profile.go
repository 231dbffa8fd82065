package profile

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrProfile is returned for a profile that is not usable; the message names the key and the allowed values.
var ErrProfile = errors.New("profile: invalid")

// Version of the form of a profile in JSON.
const Version = 1

// Profile is one engine with one model on one machine.
type Profile struct {
	Version     int    `json:"version"`
	Name        string `json:"name"`
	Source      string `json:"source"`                // where the figures come from
	Fingerprint string `json:"fingerprint,omitempty"` // of the engine, as it tells itself; empty: not known
	Limits      Limits `json:"limits"`
	Cost        Cost   `json:"step"`
	Fit         *Fit   `json:"fit,omitempty"` // nil: stated, not fitted
}

// Limits are what bounds a step of the engine; see batch.Config for the ranges.
type Limits struct {
	KVTokens      int `json:"kv_tokens"`
	PageTokens    int `json:"page_tokens"`
	Sequences     int `json:"sequences"` // ids: running ones and those that hold cached prefixes
	MaxBatch      int `json:"max_batch"` // running at once
	BatchTokens   int `json:"batch_tokens"`
	ChunkTokens   int `json:"chunk_tokens"`
	ContextTokens int `json:"context_tokens"`
}

// Cost is the time that the parts of a step take, in nanoseconds, all ≥ 0 but Prefill.
type Cost struct {
	Base float64 `json:"base_ns"` // of every step
	// Prefill is how much more a step with any prefill takes, ≥ -Base: below 0 where prefill and decode in one step share
	// work, such as reading the weights.
	Prefill      float64 `json:"prefill_ns"`
	PrefillToken float64 `json:"prefill_token_ns"` // for each token of prefill
	ContextToken float64 `json:"context_token_ns"` // for each token that the step's sequences hold after it
	// Decode is by the number of sequences that decode, in ascending order from 1; none: decoding costs no more than Base.
	Decode []Point `json:"decode,omitempty"`
}

// Point is what Batch decoding sequences take together.
type Point struct {
	Batch int     `json:"batch"`
	Time  float64 `json:"ns"`
}

// Fit tells how well a fitted profile says what was measured.
type Fit struct {
	Steps    int     `json:"steps"`      // that were fitted
	HeldOut  int     `json:"held_out"`   // that were not, and on which the errors are
	R2       float64 `json:"r2"`         // of the fitted steps
	ErrorP50 float64 `json:"error_p50"`  // |predicted / measured - 1|
	ErrorP95 float64 `json:"error_p95"`  //
	MeanBias float64 `json:"error_mean"` // predicted / measured - 1, signed
}

// Step returns how long the engine takes for a step with so many tokens of prefill and so many sequences that decode, which
// with the prefilled ones hold context tokens after it. It allocates nothing.
func (p *Profile) Step(prefill, decodes, context int) time.Duration {
	// Conversions keep the compiler from fusing: every machine gets the same time.
	ns := p.Cost.Base + float64(p.Cost.ContextToken*float64(context))
	if prefill > 0 {
		ns += p.Cost.Prefill + float64(p.Cost.PrefillToken*float64(prefill))
	}
	if decodes > 0 && len(p.Cost.Decode) > 0 {
		ns += decode(p.Cost.Decode, decodes)
	}
	return time.Duration(ns + 0.5)
}

// decode reads the table, which has at least one point.
func decode(table []Point, n int) float64 {
	last := len(table) - 1
	i := 0
	for i < last && table[i].Batch < n {
		i++
	}
	b := &table[i]
	if i == 0 { // 1, or beyond a table of one point
		return b.Time
	}
	a := &table[i-1]
	slope := (b.Time - a.Time) / float64(b.Batch-a.Batch)
	if n > b.Batch {
		return b.Time + float64(max(0, slope)*float64(n-b.Batch))
	}
	return a.Time + float64(slope*float64(n-a.Batch))
}

// Batch returns how a planner uses all of the engine, with paged allocation, continuous batching and no prefix cache.
func (p *Profile) Batch() batch.Config {
	l := &p.Limits
	return batch.Config{
		PageTokens: l.PageTokens, KVPages: l.KVTokens / max(1, l.PageTokens), Sequences: l.Sequences, MaxBatch: l.MaxBatch,
		BatchTokens: l.BatchTokens, ChunkTokens: l.ChunkTokens, ContextTokens: l.ContextTokens,
	}
}

// Validate returns ErrProfile for the first key that is outside its range.
func (p *Profile) Validate() error {
	bad := func(key string, value any, allowed string) error {
		return fmt.Errorf("%w: %s is %v, allowed: %s", ErrProfile, key, value, allowed)
	}
	if p.Version != Version {
		return bad("version", p.Version, fmt.Sprint(Version))
	}
	if p.Name == "" {
		return bad("name", "empty", "a name")
	}
	c := p.Batch()
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: limits: %w", ErrProfile, err)
	}
	const most = 1e12 // 1,000 s
	from := func(least float64, key string, ns float64) error {
		if !(ns >= least && ns <= most) {
			return bad(key, ns, fmt.Sprintf("%g to 1e12 ns", least))
		}
		return nil
	}
	time := func(key string, ns float64) error { return from(0, key, ns) }
	s := &p.Cost
	if err := errors.Join(time("step.base_ns", s.Base), from(-s.Base, "step.prefill_ns", s.Prefill), time("step.prefill_token_ns", s.PrefillToken),
		time("step.context_token_ns", s.ContextToken)); err != nil {
		return err
	}
	before := 0
	for i, d := range s.Decode {
		if key := fmt.Sprintf("step.decode[%d]", i); i == 0 && d.Batch != 1 || d.Batch <= before || d.Batch > math.MaxInt32 {
			return bad(key+".batch", d.Batch, "1 for the first, then ascending")
		} else if err := time(key+".ns", d.Time); err != nil {
			return err
		}
		before = d.Batch
	}
	if p.Step(1, 0, 1) <= 0 || p.Step(0, 1, 1) <= 0 {
		return bad("step", "free", "more than 0 ns for one token of prefill and for one decoding sequence")
	}
	return nil
}
