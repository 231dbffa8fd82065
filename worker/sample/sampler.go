package sample

import (
	"errors"
	"math"

	"github.com/cadence-slo/cadence/schema"
)

// ErrLogits is returned for a row that no token can be chosen from: a value that is not finite, or no values.
var ErrLogits = errors.New("sample: logits are not finite")

// Sampler is one sequence's way of choosing. The zero value is greedy; see Reset.
type Sampler struct {
	p       schema.Sampling
	counts  map[int32]count // nil until a penalty needs it
	penalty bool
}

type count struct {
	prompt bool
	output int32
}

// Reset makes s a fresh sampler for a sequence: prompt is what the client sent, output what was generated so far.
// Neither is kept. It returns schema.ErrInvalid for parameters out of their ranges.
func (s *Sampler) Reset(p schema.Sampling, prompt, output []int32) error {
	if err := p.Validate(); err != nil {
		return err
	}
	s.p = p
	repeats := p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1
	s.penalty = repeats || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
	clear(s.counts)
	if !s.penalty {
		return nil
	}
	if s.counts == nil {
		s.counts = make(map[int32]count, len(output)+64)
	}
	if repeats {
		for _, id := range prompt {
			s.counts[id] = count{prompt: true}
		}
	}
	for _, id := range output {
		s.Accept(id)
	}
	return nil
}

// Accept tells the sampler a token that was chosen for the sequence, in any way.
func (s *Sampler) Accept(id int32) {
	if s.penalty {
		c := s.counts[id]
		c.output++
		s.counts[id] = c
	}
}

// Sample returns the token for a position from its logits (one per id of the vocabulary), which are as they were when it
// returns. It does not Accept what it returns. A row that is not finite gives ErrLogits.
func (s *Sampler) Sample(logits []float32, pos int32, w *Scratch) (int32, error) {
	return s.SampleAllowed(logits, pos, w, nil)
}

// SampleAllowed is Sample among the tokens that a filter allows; nil allows all. The parameters keep what they keep
// without the filter; only if the filter allows none of that, they are applied to what it does allow. Errors of the
// filter are returned as they are; ErrNoToken says that it allows nothing.
func (s *Sampler) SampleAllowed(logits []float32, pos int32, w *Scratch, f Filter) (int32, error) {
	best, err := w.findPeaks(logits)
	if err != nil {
		return 0, err
	}
	if s.penalty {
		s.penalize(logits, w)
		defer w.restore(logits)
		if best, err = w.findPeaks(logits); err != nil {
			return 0, err
		}
	}
	id := best
	if s.p.Temperature != 0 {
		w.grow(len(logits))
		id = s.draw(logits, nil, best, pos, w)
	}
	if f == nil {
		return id, nil
	}
	return s.constrained(logits, id, pos, w, f)
}

// penalize changes logits until restore.
func (s *Sampler) penalize(logits []float32, w *Scratch) {
	w.was = w.was[:0]
	r := s.p.RepetitionPenalty
	if r == 0 {
		r = 1
	}
	for id, c := range s.counts {
		if int(id) >= len(logits) || id < 0 {
			continue // a token of another vocabulary: nothing to penalize
		}
		l := logits[id]
		w.was = append(w.was, scored{id, l})
		if l > 0 {
			l /= r
		} else {
			l *= r
		}
		if c.output > 0 {
			l -= s.p.PresencePenalty + s.p.FrequencyPenalty*float32(c.output)
		}
		logits[id] = min(max(l, -math.MaxFloat32), math.MaxFloat32)
	}
}

// restore undoes penalize.
func (w *Scratch) restore(logits []float32) {
	for _, x := range w.was {
		logits[x.id] = x.logit
	}
}
