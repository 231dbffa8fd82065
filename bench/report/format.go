package report

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/bench/stat"
)

// none stands where there is no value.
const none = "–"

// number writes a number as people say it: at most three digits behind the first.
func number(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

// figure writes a value to about three significant digits, without an exponent.
func figure(x float64) string {
	// What is rounded up to the next power of ten has its digits.
	if r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64); err == nil && math.Abs(x) < 100 {
		x = r
	}
	a := math.Abs(x)
	digits := 0
	switch {
	case x == 0:
		return "0"
	case a < 0.001:
		return strconv.FormatFloat(x, 'g', 2, 64)
	case a < 0.1:
		digits = 3
	case a < 10:
		digits = 2
	case a < 100:
		digits = 1
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

func signed(x float64) string {
	if x > 0 {
		return "+" + figure(x)
	}
	return figure(x)
}

func percent(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }

func signedPercent(x float64) string { return fmt.Sprintf("%+.0f %%", 100*x) }

// value writes a metric of a cell: the mean, and the least and largest if they differ. Ratios are in per cent.
func value(m Metric, v Value) string {
	if v.Count == 0 {
		return none
	}
	write, unit := figure, ""
	if m.Unit == "" && m.Name != Fairness.Name {
		write, unit = func(x float64) string { return fmt.Sprintf("%.0f", 100*x) }, " %"
	}
	mean, least, most := write(v.Mean), write(v.Min), write(v.Max)
	text := mean + unit
	if least != mean || most != mean {
		text = mean + " [" + least + ", " + most + "]" + unit
	}
	if v.Lower {
		text = "≥ " + text
	}
	if v.Survivors {
		text += " ‡"
	}
	return text
}

// ratioSign says what a ratio is when what it divides by, or what is divided, is a lower bound: an upper bound, a lower
// bound, or of no known direction.
func ratioSign(before, after bool) string {
	switch {
	case before && after:
		return "? "
	case before:
		return "≤ "
	case after:
		return "≥ "
	}
	return ""
}

// estimate writes a value with its interval.
func estimate(e stat.Estimate, write func(float64) string) string {
	return write(e.Value) + " [" + write(e.Low) + ", " + write(e.High) + "]"
}

// duration writes a duration in one unit.
func duration(d time.Duration) string {
	if d > 0 && d < time.Second {
		return number(float64(d)/1e6) + " ms"
	}
	return number(d.Seconds()) + " s"
}

func count(n int) string { return strconv.Itoa(n) }
