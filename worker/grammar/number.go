package grammar

import (
	"math"
	"strconv"
	"strings"
)

// maxWhole is the largest whole number that a bound may be: 15 digits, which a float64 holds exactly.
const maxWhole = 999_999_999_999_999

// number is a number or an integer within bounds that are whole numbers.
func (c *compiler) number(n *node, whole bool) (string, error) {
	lo, hasLo, openLo, err := bound(n, "minimum", "exclusiveMinimum", 1, whole)
	if err != nil {
		return "", err
	}
	hi, hasHi, openHi, err := bound(n, "maximum", "exclusiveMaximum", -1, whole)
	if err != nil {
		return "", err
	}
	if !hasLo && !hasHi {
		if whole {
			return c.use("integer"), nil
		}
		return c.use("number"), nil
	}
	if end := int64(maxWhole); whole {
		lo, hi = otherwise(hasLo, lo, -end), otherwise(hasHi, hi, end)
	} else { // so that all numbers of as many digits are within
		lo, hi = otherwise(hasLo, lo, -end-1), otherwise(hasHi, hi, end+1)
		openLo, openHi = openLo || !hasLo, openHi || !hasHi
	}
	if lo > hi || lo == hi && (openLo || openHi) {
		return "", n.fail("no number is within its bounds")
	}
	if whole {
		return integers(lo, hi), c.spend(n, 64)
	}
	return decimals(lo, hi, openLo, openHi), c.spend(n, 256)
}

func otherwise(has bool, v, none int64) int64 {
	if has {
		return v
	}
	return none
}

// bound reads the inclusive or exclusive bound of a side. An exclusive one of an integer becomes inclusive: inward is the
// step to the next integer within.
func bound(n *node, inclusive, exclusive string, inward int64, whole bool) (v int64, has, open bool, err error) {
	in, ex := n.get(inclusive), n.get(exclusive)
	switch {
	case in != nil && ex != nil:
		return 0, false, false, ex.fail("'%s' beside '%s' is not supported", exclusive, inclusive)
	case in == nil && ex == nil:
		return 0, false, false, nil
	case in == nil:
		in, open = ex, true
	}
	f, perr := strconv.ParseFloat(in.text, 64)
	if in.kind != number || perr != nil || f != math.Trunc(f) || math.Abs(f) > maxWhole-1 {
		return 0, false, false, in.fail("only whole numbers of at most 15 digits are supported as bounds")
	}
	v = int64(f)
	if open && whole {
		return v + inward, true, false, nil
	}
	return v, true, open, nil
}

// integers matches the decimal numbers of the integers in [lo, hi].
func integers(lo, hi int64) string {
	var all []string
	if lo < 0 {
		all = append(all, `"-" (`+naturals(max(1, -hi), -lo)+")")
	}
	if hi >= 0 {
		all = append(all, naturals(max(0, lo), hi))
	}
	return strings.Join(all, " | ")
}

// naturals matches those in [lo, hi], 0 ≤ lo ≤ hi.
func naturals(lo, hi int64) string {
	var all []string
	least := 0 // of digits after the first, of numbers that are all within
	for from := lo; ; {
		digits := len(strconv.FormatInt(from, 10))
		first, last := int64(math.Pow10(digits-1)), int64(math.Pow10(digits))-1
		if from == first && last <= hi {
			if least == 0 {
				least = digits
			}
			if last == hi || last*10+9 > hi {
				all = append(all, strings.TrimSpace("[1-9] "+repeated(least-1, digits-1)))
			}
		} else {
			all = append(all, sameLength(strconv.FormatInt(from, 10), strconv.FormatInt(min(last, hi), 10))...)
		}
		if last >= hi {
			return strings.Join(all, " | ")
		}
		from = last + 1
	}
}

// repeated matches lo to hi digits.
func repeated(lo, hi int) string {
	if lo == hi {
		return digits(lo)
	}
	return "[0-9]" + repeat(lo, hi)
}

// sameLength matches the digit strings from a to b, which are as long as each other.
func sameLength(a, b string) []string {
	n := len(a)
	zeroes, nines := strings.Repeat("0", n), strings.Repeat("9", n)
	switch {
	case n == 0:
		return []string{""}
	case a == b:
		return []string{quote(a)}
	case a == zeroes && b == nines:
		return []string{digits(n)}
	case a[0] == b[0]:
		return prefixed(quote(a[:1]), sameLength(a[1:], b[1:]))
	}
	var all []string
	from, to := a[0], b[0]
	if a[1:] != zeroes[1:] {
		all = append(all, prefixed(quote(a[:1]), sameLength(a[1:], nines[1:]))...)
		from++
	}
	last := b[1:] != nines[1:]
	if last {
		to--
	}
	if from <= to {
		all = append(all, strings.TrimSpace("["+string(from)+"-"+string(to)+"] "+digits(n-1)))
	}
	if last {
		all = append(all, prefixed(quote(b[:1]), sameLength(zeroes[1:], b[1:]))...)
	}
	return all
}

// prefixed puts a literal before alternatives.
func prefixed(prefix string, all []string) []string {
	for i := range all {
		if strings.HasPrefix(all[i], `"`) { // two literals are one
			all[i] = strings.TrimSuffix(prefix, `"`) + all[i][1:]
		} else {
			all[i] = strings.TrimSpace(prefix + " " + all[i])
		}
	}
	return all
}

func digits(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "[0-9]"
	}
	return "[0-9]{" + strconv.Itoa(n) + "}"
}

// decimals matches numbers with at most 16 decimals between lo and hi, each of which belongs to them unless open.
func decimals(lo, hi int64, openLo, openHi bool) string {
	var all []string
	if lo < 0 { // the same on the other side of zero, without zero
		near, open := max(0, -hi), openHi
		if hi >= 0 {
			near, open = 0, true
		}
		all = append(all, prefixed(`"-"`, magnitudes(near, -lo, open, openLo))...)
	}
	if hi >= 0 {
		near, open := lo, openLo
		if lo < 0 {
			near, open = 0, false
		}
		all = append(all, magnitudes(near, hi, open, openHi)...)
	}
	return strings.Join(all, " | ")
}

// magnitudes matches numbers between lo and hi, 0 ≤ lo ≤ hi.
func magnitudes(lo, hi int64, openLo, openHi bool) []string {
	const zeroes, some, positive = ` ("." "0"{1,16})?`, ` ("." [0-9]{1,16})?`, ` "." [0-9]{0,8} [1-9] [0-9]{0,7}`
	var all []string
	if lo < hi { // from lo to before hi
		from := lo
		if openLo {
			all = append(all, quote(strconv.FormatInt(lo, 10))+positive)
			from++
		}
		if from < hi {
			all = append(all, group(naturals(from, hi-1))+some)
		}
	}
	if !openHi && (lo < hi || !openLo) {
		all = append(all, quote(strconv.FormatInt(hi, 10))+zeroes)
	}
	return all
}
