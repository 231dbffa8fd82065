package mock_test

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
	"pgregory.net/rapid"
)

// What the mock says of itself is what its steps take, to a nanosecond of rounding.
func TestProfileIsTheCost(t *testing.T) {
	stated, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := mock.DefaultConfig()
		c.StepBase = time.Duration(rapid.Int64Range(1, 1e8).Draw(t, "base"))
		c.StepSequence = time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "sequence"))
		c.PrefillRate = rapid.SampledFrom([]float64{0, 100, 4000, 3e6}).Draw(t, "rate")
		if rapid.Bool().Draw(t, "profile") {
			c.Profile = stated
		}
		b, err := mock.New(c)
		if err != nil {
			t.Fatal(err)
		}
		p := b.Profile()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(0, 512)
		step := batch.Batch{PrefillTokens: n.Draw(t, "prefill"), Decodes: n.Draw(t, "decodes"), ContextTokens: n.Draw(t, "context")}
		got, want := p.Step(step.PrefillTokens, step.Decodes, step.ContextTokens), c.Cost(&step)
		if d := got - want; d < -1 || d > 1 {
			t.Fatalf("%v, takes %v", got, want)
		}
	})
}

func TestFreeEngineHasNoProfile(t *testing.T) {
	b, err := mock.New(mock.FreeConfig())
	if err != nil {
		t.Fatal(err)
	}
	if p := b.Profile(); p != nil {
		t.Errorf("%+v", p)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
