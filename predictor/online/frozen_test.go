package online_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/predictor/profile"
)

// A frozen predictor bounds as often as its level says where it was calibrated, learns nothing of an engine that has become slower,
// and still counts what becomes of its bounds.
func TestFrozenLearnsNothing(t *testing.T) {
	prof, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	e := &predictor.Engine{Profile: prof, Plan: prof.Batch(), FreePages: 1000}
	s := predictor.Sequence{PromptTokens: 64, PrefillTokens: 64, CapTokens: 64, E2E: time.Minute}
	rng := rand.New(rand.NewPCG(5, 6))
	id := uint64(0)
	serve := func(p *online.Predictor, n int, factor float64) online.Foresight {
		var f online.Foresight
		for range n {
			id++
			now := time.Duration(id) * time.Hour
			if err := p.Foresee(e, &s, &f); err != nil {
				t.Fatal(err)
			}
			p.Admit(id, &f, 1, now)
			tokens := 1 + rng.IntN(40)
			took := time.Duration(factor * float64(prof.Step(64, 0, 64)+time.Duration(tokens-1)*prof.Step(0, 1, 80)) * math.Exp(0.2*rng.NormFloat64()))
			p.End(id, online.Ending{E2E: took, Tokens: int32(tokens)}, now+took)
		}
		if err := p.Foresee(e, &s, &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	config := online.DefaultConfig(0.8)
	config.Window = 2000
	p, err := online.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Frozen(0.9); !errors.Is(err, conformal.ErrLevel) {
		t.Errorf("before anything was seen: %v", err)
	}
	if _, err := p.Frozen(1); !errors.Is(err, online.ErrConfig) {
		t.Errorf("level 1: %v", err)
	}
	serve(p, 2000, 1)
	bound := time.Duration(0)
	for _, level := range []float64{0.8, 0.95, 0.99} {
		z, err := p.Frozen(level)
		if err != nil {
			t.Fatal(err)
		}
		first := serve(z, 0, 1)
		if z.Cold() || first.Bound <= bound || first.Level != level {
			t.Errorf("at %v the bound is %v at %v, after %v", level, first.Bound, first.Level, bound)
		}
		bound = first.Bound
		if again := serve(z, 2000, 1); again.Bound != first.Bound || again.Predicted != first.Predicted || again.Meet != first.Meet {
			t.Errorf("%+v became %+v", first.Outlook, again.Outlook)
		}
		c := z.Coverage()
		if got := float64(c.Hits) / float64(c.Rows()); c.Rows() != 2000 || math.Abs(got-level) > 0.03 {
			t.Errorf("bounds at %v held in %.3f of %d", level, got, c.Rows())
		}
		before := z.Coverage().Misses
		if slow := serve(z, 500, 3); slow.Bound != first.Bound {
			t.Errorf("of an engine that became slower it learned: %v became %v", first.Bound, slow.Bound)
		}
		if c = z.Coverage(); c.Misses-before < 200 {
			t.Errorf("bounds of before hold on an engine that takes three times as long: %+v", c)
		}
	}
}
