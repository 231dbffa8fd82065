package openai

import "math"

// exactness says what integer made of a number.
type exactness byte

const (
	whole    exactness = iota // the value is the number
	clamped                   // the number is whole, but beyond int64: the value is the nearest one
	fraction                  // the number is not whole: the value means nothing
)

// integer reads the text of a JSON number as a whole number by its value, not its spelling: 1e3 and 10.0 are whole,
// 1.5 and 1e-1 are not. It is exact for every length and exponent.
func integer(raw []byte) (int64, exactness) {
	negative := raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	mantissa, exp := raw, int64(0)
	for i, c := range raw {
		if c == 'e' || c == 'E' {
			mantissa, exp = raw[:i], exponent(raw[i+1:])
			break
		}
	}
	// The number is digits × 10^exp; zeros at the ends of digits do not change it.
	first, last, point := -1, -1, -1
	for i, c := range mantissa {
		switch {
		case c == '.':
			point = i
		case c != '0':
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return 0, whole
	}
	if point < 0 {
		point = len(mantissa)
	}
	// places is the power of ten of the last digit that is not 0.
	places := exp + int64(point-last)
	if last < point {
		places--
	}
	if places < 0 {
		return 0, fraction
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	var v uint64
	push := func(d uint64) bool {
		if v > (limit-d)/10 {
			return false
		}
		v = v*10 + d
		return true
	}
	ok := true
	for i := first; ok && i <= last; i++ {
		if i != point {
			ok = push(uint64(mantissa[i] - '0'))
		}
	}
	for ; ok && places > 0; places-- {
		ok = push(0)
	}
	if !ok {
		v = limit
	}
	n := int64(v)
	if negative {
		n = -n // also right for the smallest int64, whose negative is itself
	}
	if !ok {
		return n, clamped
	}
	return n, whole
}

// exponent reads [+-]digits, saturating far beyond what any mantissa of a bounded body could undo.
func exponent(raw []byte) int64 {
	const top = 1 << 40
	negative := false
	var v int64
	for i, c := range raw {
		switch {
		case i == 0 && (c == '+' || c == '-'):
			negative = c == '-'
		case v < top:
			v = v*10 + int64(c-'0')
		}
	}
	if negative {
		return -v
	}
	return v
}
