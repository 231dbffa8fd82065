//go:build llama && cgo

package llama

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

const hidden = 0xFC00 // -infinity in half precision

// half returns a float that half precision holds, and its bits: sign, exponents from 2^-3 to 2^3, ten bits of fraction.
func half(r *rand.Rand) (float32, uint16) {
	sign, exponent, fraction := uint16(r.IntN(2)), uint16(12+r.IntN(5)), uint16(r.IntN(1024))
	x := math.Ldexp(1+float64(fraction)/1024, int(exponent)-15)
	if sign == 1 {
		x = -x
	}
	return float32(x), sign<<15 | exponent<<10 | fraction
}

// problem is an operation with random operands, and the cells that each token may see.
type problem struct {
	attention
	q, key, value []float32
	k, v, mask    []uint16
}

// newProblem makes one; sees tells which cells a token attends to.
func newProblem(a attention, seed uint64, sees func(token, cell int) bool) *problem {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &problem{attention: a, q: make([]float32, a.tokens*a.heads*a.width), mask: make([]uint16, a.tokens*a.cells)}
	for i := range p.q {
		p.q[i] = float32(r.NormFloat64()) / 2
	}
	for range a.cells * a.groups * a.width {
		x, bits := half(r)
		p.key, p.k = append(p.key, x), append(p.k, bits)
		x, bits = half(r)
		p.value, p.v = append(p.value, x), append(p.v, bits)
	}
	for t := range a.tokens {
		for c := range a.cells {
			if !sees(t, c) {
				p.mask[t*a.cells+c] = hidden
			}
		}
	}
	return p
}

// naive computes it as the formula says, in double precision.
func (p *problem) naive() []float64 {
	out := make([]float64, p.tokens*p.heads*p.width)
	for t := range p.tokens {
		for h := range p.heads {
			g := h / (p.heads / p.groups)
			scores, most := make([]float64, p.cells), math.Inf(-1)
			for c := range scores {
				scores[c] = math.Inf(-1)
				if p.mask[t*p.cells+c] == hidden {
					continue
				}
				scores[c] = 0
				for d := range p.width {
					scores[c] += float64(p.q[(t*p.heads+h)*p.width+d]) * float64(p.key[(c*p.groups+g)*p.width+d]) * float64(p.scale)
				}
				most = max(most, scores[c])
			}
			sum := 0.0
			o := out[(t*p.heads+h)*p.width:][:p.width]
			for c, s := range scores {
				if math.IsInf(s, -1) {
					continue
				}
				w := math.Exp(s - most)
				sum += w
				for d := range o {
					o[d] += w * float64(p.value[(c*p.groups+g)*p.width+d])
				}
			}
			for d := range o {
				if sum > 0 {
					o[d] /= sum
				}
			}
		}
	}
	return out
}

func TestAttentionIsTheFormula(t *testing.T) {
	shapes := []attention{
		{width: 64, tokens: 1, heads: 12, groups: 4, cells: 256, threads: 1},
		{width: 64, tokens: 50, heads: 12, groups: 4, cells: 512, threads: 1},
		{width: 64, tokens: 37, heads: 14, groups: 2, cells: 300, threads: 3},
		{width: 128, tokens: 40, heads: 8, groups: 8, cells: 256, threads: 2},
		{width: 32, tokens: 70, heads: 4, groups: 1, cells: 320, threads: 1},
		{width: 256, tokens: 9, heads: 4, groups: 2, cells: 100, threads: 1},
	}
	for i, a := range shapes {
		a.scale = float32(1 / math.Sqrt(float64(a.width)))
		r := rand.New(rand.NewPCG(uint64(i), 2))
		place := r.Perm(a.cells) // cells in the order in which they were filled
		owner := make([]int, a.cells)
		for c := range owner {
			owner[c] = r.IntN(5)
		}
		for name, sees := range map[string]func(token, cell int) bool{
			"a chunk":           func(token, cell int) bool { return cell <= a.cells/2+token },
			"scattered cells":   func(token, cell int) bool { return place[cell] <= a.cells/2+token },
			"other sequences":   func(token, cell int) bool { return owner[cell] == token%5 },
			"a chunk among all": func(token, cell int) bool { return owner[cell] == min(token/3, 4) && place[cell] < a.cells-60+token },
			"one cell":          func(token, cell int) bool { return cell == token*7%a.cells },
			"nothing":           func(token, _ int) bool { return token%2 == 0 },
		} {
			t.Run(fmt.Sprintf("%d/%s", i, name), func(t *testing.T) {
				p := newProblem(a, uint64(i), sees)
				got, want := make([]float32, len(p.q)), p.naive()
				if !p.attend(p.q, p.k, p.v, p.mask, nil, got) {
					t.Fatal("not computed here")
				}
				for k := range got {
					if d := math.Abs(float64(got[k]) - want[k]); !(d <= 2e-5) {
						t.Fatalf("%d is %v, want %v", k, got[k], want[k])
					}
				}
			})
		}
	}
	odd := attention{width: 80, tokens: 1, heads: 1, groups: 1, cells: 16, threads: 1, scale: 1}
	p := newProblem(odd, 1, func(int, int) bool { return true })
	if p.attend(p.q, p.k, p.v, p.mask, nil, make([]float32, len(p.q))) {
		t.Error("a width of 80 is computed here")
	}
}

// With whom a token is computed changes nothing, to the last bit.
func TestAttentionIsTheSameAlone(t *testing.T) {
	a := attention{width: 64, tokens: 45, heads: 12, groups: 4, cells: 512, threads: 1, scale: 0.125}
	p := newProblem(a, 9, func(token, cell int) bool { return cell <= 300+token })
	whole := make([]float32, len(p.q))
	if !p.attend(p.q, p.k, p.v, p.mask, nil, whole) {
		t.Fatal("not computed here")
	}
	row := a.heads * a.width
	for token := range a.tokens {
		one, got := a, make([]float32, row)
		one.tokens = 1
		one.attend(p.q[token*row:], p.k, p.v, p.mask[token*a.cells:], nil, got)
		for k, x := range got {
			if x != whole[token*row+k] {
				t.Fatalf("token %d, value %d: %v alone, %v in the chunk", token, k, x, whole[token*row+k])
			}
		}
	}
}

// Where the cells of a sequence lie, and who else has cells between them, changes nothing, to the last bit.
func TestAttentionDoesNotDependOnPlaces(t *testing.T) {
	a := attention{width: 64, tokens: 70, heads: 12, groups: 4, cells: 256, threads: 1, scale: 0.125}
	const before = 150 // tokens of the sequence that are in the cache already
	alone := newProblem(a, 3, func(token, cell int) bool { return cell <= before+token })
	want := make([]float32, len(alone.q))
	if !alone.attend(alone.q, alone.k, alone.v, alone.mask, nil, want) {
		t.Fatal("not computed here")
	}
	row, wide := a.groups*a.width, a.heads*a.width
	for seed := range uint64(20) {
		// The same sequence in scattered cells of a larger cache; the tokens of another one between its own.
		r := rand.New(rand.NewPCG(seed, 5))
		b := a
		b.cells, b.tokens, b.threads = 256+r.IntN(700), 0, 1+r.IntN(3)
		place := r.Perm(b.cells) // by position: the sequence's cells, then the other's
		var mine []int           // by token of the batch: which of the sequence's it is, -1 for the other's
		for next := 0; next < a.tokens; b.tokens++ {
			if r.IntN(4) == 0 {
				mine = append(mine, -1)
				continue
			}
			mine = append(mine, next)
			next++
		}
		position := make([]int32, b.cells)
		for p, c := range place {
			position[c] = int32(p)
			if p >= a.cells {
				position[c] = int32(p - a.cells)
			}
		}
		others := 0
		seen := make([]int, b.tokens) // tokens of its own sequence that each sees
		for i, k := range mine {
			if others++; k >= 0 {
				others--
				seen[i] = before + k + 1
			} else {
				seen[i] = min(others, b.cells-a.cells)
			}
		}
		p := newProblem(b, seed, func(token, cell int) bool {
			first := 0
			if mine[token] < 0 {
				first = a.cells
			}
			at := slices.Index(place, cell) - first
			return at >= 0 && at < seen[token]
		})
		for at := range a.cells {
			copy(p.k[place[at]*row:][:row], alone.k[at*row:][:row])
			copy(p.v[place[at]*row:][:row], alone.v[at*row:][:row])
		}
		for i, k := range mine {
			if k >= 0 {
				copy(p.q[i*wide:][:wide], alone.q[k*wide:][:wide])
			}
		}
		got := make([]float32, len(p.q))
		if !p.attend(p.q, p.k, p.v, p.mask, position, got) {
			t.Fatal("not computed here")
		}
		for i, k := range mine {
			if k >= 0 && !slices.Equal(got[i*wide:][:wide], want[k*wide:][:wide]) {
				t.Fatalf("seed %d: token %d is not what it is in order", seed, k)
			}
		}
	}
}

// A NaN in the cells of one sequence stays there.
func TestAttentionKeepsNaNApart(t *testing.T) {
	a := attention{width: 64, tokens: 40, heads: 6, groups: 2, cells: 256, threads: 1, scale: 0.125}
	p := newProblem(a, 1, func(token, cell int) bool { return cell%2 == token%2 })
	for c := 1; c < a.cells; c += 2 {
		p.k[c*a.groups*a.width], p.v[c*a.groups*a.width] = 0x7e00, 0x7e00
	}
	got := make([]float32, len(p.q))
	if !p.attend(p.q, p.k, p.v, p.mask, nil, got) {
		t.Fatal("not computed here")
	}
	spoiled := 0
	for k, x := range got {
		token := k / (a.heads * a.width)
		if x != x && token%2 == 0 {
			t.Fatalf("token %d, which sees no NaN, came to one", token)
		} else if x != x {
			spoiled++
		}
	}
	if spoiled == 0 {
		t.Error("who sees a NaN came to none")
	}
}

// One layer's attention of the 120 M model: a chunk of 256 tokens, and 16 sequences that decode, each with 300 cells of its
// own among as many cells of others as the case says.
func BenchmarkAttention(b *testing.B) {
	for _, others := range []int{0, 5000, 15000} {
		cells := (others + 16*300 + 255) / 256 * 256
		for name, c := range map[string]struct {
			tokens int
			sees   func(token, cell int) bool
		}{
			"prefill256": {256, func(token, cell int) bool { return cell <= 44+token }},
			"decode16":   {16, func(token, cell int) bool { return cell < 16*300 && cell/300 == token }},
		} {
			b.Run(fmt.Sprintf("%s/others=%d", name, others), func(b *testing.B) {
				a := attention{width: 64, tokens: c.tokens, heads: 12, groups: 4, cells: cells, threads: 1, scale: 0.125}
				p := newProblem(a, 1, c.sees)
				out := make([]float32, len(p.q))
				for b.Loop() {
					p.attend(p.q, p.k, p.v, p.mask, nil, out)
				}
			})
		}
	}
}
