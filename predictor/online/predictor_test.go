package online_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/predictor/profile"
)

func open(t testing.TB) (*profile.Profile, *predictor.Engine) {
	t.Helper()
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	return p, &predictor.Engine{Profile: p, Plan: p.Batch(), FreePages: 1000}
}

func newPredictor(t testing.TB, c online.Config) *online.Predictor {
	t.Helper()
	p, err := online.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// live lets an idle engine answer n requests, each alone: answers of 1 to 40 tokens, steps that take factor times what the profile
// says and noise on top. It returns in how many of the last half of them the bound held.
func live(t testing.TB, p *online.Predictor, e *predictor.Engine, rng *rand.Rand, from, n int, factor float64) float64 {
	t.Helper()
	var f online.Foresight
	held, asked := 0.0, 0.0
	for i := range n {
		now := time.Duration(from+i) * time.Hour
		s := predictor.Sequence{PromptTokens: 64, PrefillTokens: 64, CapTokens: 64}
		if err := p.Foresee(e, &s, &f); err != nil {
			t.Fatal(err)
		}
		p.Admit(uint64(from+i), &f, 1, now)
		tokens := 1 + rng.IntN(40)
		alone := e.Profile.Step(64, 0, 64)
		for k := 1; k < tokens; k++ {
			alone += e.Profile.Step(0, 1, 64+k)
		}
		took := time.Duration(float64(alone) * factor * math.Exp(0.2*rng.NormFloat64()))
		if i >= n/2 {
			asked++
			if f.Bound > 0 && took <= f.Bound {
				held++
			}
		}
		p.End(uint64(from+i), online.Ending{E2E: took, Tokens: int32(tokens)}, now+took)
	}
	return held / asked
}

// From a cold start it comes to bounds that hold at their level, and again after the engine has become slower.
func TestBoundsComeToTheirLevel(t *testing.T) {
	_, e := open(t)
	p := newPredictor(t, online.DefaultConfig(0.9))
	rng := rand.New(rand.NewPCG(1, 2))
	var f online.Foresight
	if err := p.Foresee(e, &predictor.Sequence{PromptTokens: 64, PrefillTokens: 64, CapTokens: 64}, &f); err != nil || !p.Cold() || f.Bound != 0 {
		t.Fatalf("before anything was seen: cold %v, bound %v, %v", p.Cold(), f.Bound, err)
	}
	if got := live(t, p, e, rng, 0, 2000, 1); p.Cold() || math.Abs(got-0.9) > 0.04 {
		t.Errorf("bounds at 0.9 held in %.3f", got)
	}
	if got := live(t, p, e, rng, 2000, 400, 2); math.Abs(got-0.9) > 0.07 {
		t.Errorf("after the engine became half as fast they held in %.3f", got)
	}
	cold := online.DefaultConfig(0.9).Warm // for which none was claimed
	if c := p.Coverage(); c.Rows() != 2400-cold || c.Censored != 0 {
		t.Errorf("%d rows judged, want %d: %+v", c.Rows(), 2400-cold, c)
	}
}

// What is foreseen of an engine that takes longer than its profile says follows it.
func TestPredictionFollowsTheEngine(t *testing.T) {
	_, e := open(t)
	p := newPredictor(t, online.DefaultConfig(0.9))
	rng := rand.New(rand.NewPCG(3, 4))
	s := predictor.Sequence{PromptTokens: 64, PrefillTokens: 64, CapTokens: 64, E2E: time.Minute}
	var before, after online.Foresight
	live(t, p, e, rng, 0, 1000, 1)
	if err := p.Foresee(e, &s, &before); err != nil {
		t.Fatal(err)
	}
	live(t, p, e, rng, 1000, 1000, 3)
	if err := p.Foresee(e, &s, &after); err != nil {
		t.Fatal(err)
	}
	if ratio := float64(after.Predicted) / float64(before.Predicted); math.Abs(ratio-3) > 0.3 {
		t.Errorf("three times as slow, and %v became %v", before.Predicted, after.Predicted)
	}
}

// Each admitted request is judged once, however it ended, and those that nobody knows are not.
func TestEachEndCountsOnce(t *testing.T) {
	_, e := open(t)
	config := online.DefaultConfig(0.9)
	config.Warm = 0 // bounds are claimed from the first
	p := newPredictor(t, config)
	var f online.Foresight
	if err := p.Foresee(e, &predictor.Sequence{PromptTokens: 8, PrefillTokens: 8, CapTokens: 8}, &f); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(5) {
		p.Admit(id, &f, 1, 0)
		p.Admit(id, &f, 1, 0)
	}
	p.End(0, online.Ending{How: online.Completed, E2E: 1, Tokens: 3}, 1)
	p.End(0, online.Ending{How: online.Dropped}, 2)
	p.End(1, online.Ending{How: online.Dropped}, 2)
	p.End(2, online.Ending{How: online.Left}, 2)
	p.End(77, online.Ending{How: online.Completed, E2E: 1, Tokens: 3}, 2)
	p.Advance(time.Hour) // 3 is overdue
	p.End(3, online.Ending{How: online.Completed, E2E: 2 * time.Hour, Tokens: 8}, 2*time.Hour)
	c := p.Coverage()
	if c.Hits != 1 || c.Misses != 3 || c.Censored != 1 { // 4 is overdue, too
		t.Errorf("%+v", c)
	}
}

func TestConfigNamesTheKey(t *testing.T) {
	for _, edit := range []func(*online.Config){
		func(c *online.Config) { c.Classes = 0 },
		func(c *online.Config) { c.HalfLife = math.NaN() },
		func(c *online.Config) { c.Window = 0 },
		func(c *online.Config) { c.Level = 1 },
		func(c *online.Config) { c.Start = -1 },
		func(c *online.Config) { c.Warm = -1 },
		func(c *online.Config) { c.Open = 0 },
		func(c *online.Config) { c.Forget = 0 },
	} {
		c := online.DefaultConfig(0.9)
		edit(&c)
		if _, err := online.New(c); !errors.Is(err, online.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
