package gbm

import (
	"cmp"
	"slices"
)

// Pinball returns the pinball loss of a prediction of a label's quantile at level (Koenker & Bassett 1978), in the label's
// unit.
func Pinball(level, label, prediction float64) float64 {
	if r := label - prediction; r > 0 {
		return level * r
	} else {
		return (level - 1) * r
	}
}

type weighted struct{ value, weight float64 }

// quantile returns the least value such that the values up to it have at least level of the weight: a minimiser of the
// pinball loss. It reorders points, of which there is at least one.
func quantile(points []weighted, level float64) float64 {
	var total float64
	for _, p := range points {
		total += p.weight
	}
	target := level * total
	// Quickselect; a bad run of pivots ends in a sort.
	for tries := 0; len(points) > 1 && tries < 64; tries++ {
		pivot := medianOfThree(points[0].value, points[len(points)/2].value, points[len(points)-1].value)
		below, above := 0, len(points)
		var wBelow, wEqual float64
		for i := 0; i < above; {
			switch p := points[i]; {
			case p.value < pivot:
				points[i], points[below] = points[below], p
				wBelow += p.weight
				below++
				i++
			case p.value > pivot:
				above--
				points[i], points[above] = points[above], p
			default:
				wEqual += p.weight
				i++
			}
		}
		switch {
		case below > 0 && wBelow >= target:
			points = points[:below]
		case wBelow+wEqual >= target || above == len(points):
			return pivot
		default:
			target -= wBelow + wEqual
			points = points[above:]
		}
	}
	slices.SortFunc(points, func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
	for _, p := range points {
		if target -= p.weight; target <= 0 {
			return p.value
		}
	}
	return points[len(points)-1].value
}

func medianOfThree(a, b, c float64) float64 {
	return max(min(a, b), min(max(a, b), c))
}
