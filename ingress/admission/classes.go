package admission

import (
	"maps"
	"math/bits"
)

// halves is how many half octaves caps lie in: each power of two and what is √2 of it begins one; those from 2^20 on are alike.
const halves = 41

// Classes numbers the classes of requests whose answers are expected to be alike in length, which is what
// predictor.Sequence.Lengths wants: requests of one owner (a tenant, or a class of them) and one kind, whose caps lie in the same
// half octave.
//
// The cap belongs to it because who asks for more mostly gets more. Where that is so and is not looked at, long answers are taken
// for usual ones, let in, and late; where answers do not depend on the cap, classes only learn more slowly.
//
// Names are for clients to choose, so that the number of classes is bounded: once all are taken, those who come later share one for
// each half octave. It has one owner.
type Classes struct {
	most   int
	number map[classKey]int32
}

type classKey struct {
	owner, kind string
	half        int
}

// NewClasses returns one without names, which will give at most so many numbers, from 0; fewer than 1 are 1.
func NewClasses(most int) *Classes {
	return &Classes{most: max(1, most), number: map[classKey]int32{}}
}

// Of returns the class of a request, in [0, most). It keeps the names if they are new and there is room for them.
func (c *Classes) Of(owner, kind string, capTokens int32) int32 {
	key := classKey{owner, kind, half(capTokens)}
	if n, ok := c.number[key]; ok {
		return n
	}
	n := halves + len(c.number) // the first ones are of those that share
	if n >= c.most {
		return int32(min(key.half, c.most-1))
	}
	c.number[key] = int32(n)
	return int32(n)
}

// half is the half octave of a cap.
func half(limit int32) int {
	k := uint64(max(1, limit))
	octave := bits.Len64(k) - 1
	h := 2 * octave
	if k*k >= 1<<(h+1) {
		h++
	}
	return min(h, halves-1)
}

// Clone returns a copy with an owner of its own.
func (c *Classes) Clone() *Classes { return &Classes{most: c.most, number: maps.Clone(c.number)} }
