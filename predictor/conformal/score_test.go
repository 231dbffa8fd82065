package conformal

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestBoundInvertsScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Score(rapid.IntRange(0, 2).Draw(t, "score"))
		y := rapid.Float64Range(1e-6, 1e4).Draw(t, "y")
		pred := rapid.Float64Range(1e-6, 1e4).Draw(t, "pred")
		scale := rapid.Float64Range(1e-3, 1e3).Draw(t, "scale")
		q, err := s.Of(y, pred, scale)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Bound(pred, scale, q)
		if err != nil || math.Abs(got-y) > 1e-9*(y+pred) {
			t.Fatalf("%v: bound at the row's own score is %v, %v; the row took %v", s, got, err, y)
		}
		if more, _ := s.Bound(pred, scale, q+0.1); more <= got {
			t.Fatalf("%v: bound %v does not grow with the quantile: %v", s, got, more)
		}
	})
}

func TestScoreRefusesWhatItCannotScore(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		s              Score
		y, pred, scale float64
	}{
		{Ratio, 0, 1, 0}, {Ratio, 1, 0, 0}, {Ratio, 1, -1, 0}, {Ratio, -1, 1, 0}, {Ratio, nan, 1, 0}, {Ratio, inf, 1, 0}, {Ratio, 1, nan, 0},
		{Absolute, -1, 1, 0}, {Absolute, 1, inf, 0}, {Scaled, 1, 1, 0}, {Scaled, 1, 1, nan}, {Scaled, 1, 1, inf}, {Score(3), 1, 1, 1},
	} {
		if got, err := c.s.Of(c.y, c.pred, c.scale); !errors.Is(err, ErrValue) {
			t.Errorf("%v.Of(%v, %v, %v) = %v, %v", c.s, c.y, c.pred, c.scale, got, err)
		}
	}
	if _, err := Ratio.Bound(1, 0, nan); !errors.Is(err, ErrValue) {
		t.Errorf("a bound at NaN: %v", err)
	}
	if u, err := Ratio.Bound(2, 0, inf); err != nil || !math.IsInf(u, 1) {
		t.Errorf("a bound at +Inf is %v, %v", u, err)
	}
	if u, err := Absolute.Bound(1, 0, -3); err != nil || u != 0 {
		t.Errorf("a latency below 0 is bounded by %v, %v", u, err)
	}
}

func TestScoreNames(t *testing.T) {
	for _, s := range []Score{Ratio, Absolute, Scaled} {
		if got, err := ParseScore(s.String()); err != nil || got != s {
			t.Errorf("%v is read as %v, %v", s, got, err)
		}
	}
	if _, err := ParseScore("median"); !errors.Is(err, ErrValue) {
		t.Errorf("an unknown score: %v", err)
	}
	var zero Score
	if zero != Ratio {
		t.Error("the default is not the ratio")
	}
}
