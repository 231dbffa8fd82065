package sample

import (
	"errors"
	"math"
)

// ErrNoToken is returned when a filter allows no token at all.
var ErrNoToken = errors.New("sample: no token is allowed")

// Filter says which tokens may come next in a sequence, as a grammar does. Asking about a token costs far more than
// drawing one.
type Filter interface {
	// Allowed sets ok[i] to whether ids[i] may come next; the two are of one length.
	Allowed(ids []int32, ok []bool) error
}

// rounds are how many of the best candidates are asked about at once, before the whole vocabulary.
var rounds = [...]int{32, 1024}

// constrained returns what SampleAllowed does; id is what is chosen without the filter, w as draw left it.
//
// Without a temperature the candidates come by falling logit. Otherwise they come in the order of their arrival in the
// race: what others are in it changes nothing about when a token arrives, so that the first allowed one is the winner of
// a race among the allowed ones, found by asking about few.
func (s *Sampler) constrained(logits []float32, id, pos int32, w *Scratch, f Filter) (int32, error) {
	w.ids, w.ok = grown(w.ids, len(logits)), grown(w.ok, len(logits))
	w.ids[0] = id
	if err := f.Allowed(w.ids[:1], w.ok[:1]); err != nil {
		return 0, err
	}
	if w.ok[0] {
		return id, nil
	}
	greedy := s.p.Temperature == 0
	w.grow(len(logits))
	kept, stream := w.kept, newStream(s.p.Seed, pos)
	for _, m := range rounds {
		if greedy {
			w.ranking.reset(min(m, len(logits)))
			for id, l := range logits {
				w.ranking.add(int32(id), float64(l))
			}
		} else {
			w.ranking.reset(min(m, len(kept)))
			for _, id := range kept {
				if weight := w.weight[id]; weight > 0 {
					w.ranking.add(id, math.Log(stream.uniform(id))/weight)
				}
			}
		}
		best := w.ranking.sorted()
		if err := f.Allowed(best, w.ok[:len(best)]); err != nil {
			return 0, err
		}
		for i, id := range best {
			if w.ok[i] {
				return id, nil
			}
		}
	}
	// The whole vocabulary.
	for id := range logits {
		w.ids[id] = int32(id)
	}
	if err := f.Allowed(w.ids, w.ok); err != nil {
		return 0, err
	}
	allowed := w.ids[:0]
	best := int32(-1)
	for id, l := range logits {
		if w.ok[id] {
			allowed = append(allowed, int32(id))
			if best < 0 || l > logits[best] {
				best = int32(id)
			}
		}
	}
	if best < 0 || greedy {
		return best, noToken(best)
	}
	some, total := kept[:0], 0.0
	for _, id := range kept {
		if w.ok[id] {
			some = append(some, id)
			total += w.weight[id]
		}
	}
	if total > 0 {
		r := row{Scratch: w, logits: logits}
		return r.race(some, stream), nil
	}
	// Nothing that the parameters keep, or nothing that could ever have been drawn.
	return s.draw(logits, append(w.kept[:0], allowed...), best, pos, w), nil
}

func noToken(best int32) error {
	if best < 0 {
		return ErrNoToken
	}
	return nil
}

func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// ranking keeps the first n of the ids added to it, by falling score, equal ones by rising id. It is a heap with the last
// of them at the top.
type ranking struct {
	n     int
	ids   []int32
	score []float64
}

func (r *ranking) reset(n int) { r.n, r.ids, r.score = n, r.ids[:0], r.score[:0] }

// after reports whether i ranks after j.
func (r *ranking) after(i, j int) bool {
	return r.score[i] < r.score[j] || r.score[i] == r.score[j] && r.ids[i] > r.ids[j]
}

func (r *ranking) swap(i, j int) {
	r.ids[i], r.ids[j] = r.ids[j], r.ids[i]
	r.score[i], r.score[j] = r.score[j], r.score[i]
}

func (r *ranking) add(id int32, score float64) {
	if len(r.ids) < r.n {
		r.ids, r.score = append(r.ids, id), append(r.score, score)
		for i := len(r.ids) - 1; i > 0 && r.after(i, (i-1)/2); i = (i - 1) / 2 {
			r.swap(i, (i-1)/2)
		}
		return
	}
	if r.n == 0 || score < r.score[0] || score == r.score[0] && id > r.ids[0] {
		return
	}
	r.ids[0], r.score[0] = id, score
	r.sink(r.n)
}

// sink moves the top of the heap of the first n to its place.
func (r *ranking) sink(n int) {
	for i := 0; ; {
		child := 2*i + 1
		if child >= n {
			return
		}
		if child+1 < n && r.after(child+1, child) {
			child++
		}
		if !r.after(child, i) {
			return
		}
		r.swap(i, child)
		i = child
	}
}

// sorted returns the ids, first to last; the ranking is then to be reset.
func (r *ranking) sorted() []int32 {
	for n := len(r.ids) - 1; n > 0; n-- {
		r.swap(0, n)
		r.sink(n)
	}
	return r.ids
}
