package fit

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"pgregory.net/rapid"
)

var batches = []int{1, 2, 4, 8, 16}

// synthetic makes steps of an engine with the given profile, with relative noise.
func synthetic(p *profile.Profile, noise float64, rng *rand.Rand) []Step {
	var steps []Step
	add := func(prefill, decodes, context int) {
		took := float64(p.Step(prefill, decodes, context)) * (1 + noise*rng.NormFloat64())
		steps = append(steps, Step{prefill, decodes, context, time.Duration(took)})
	}
	for range 40 {
		for _, b := range batches {
			add(0, b, b*(32+rng.IntN(400)))
		}
		for _, n := range []int{16, 64, 256} {
			add(n, 0, n+rng.IntN(400))
		}
		b := 1 + rng.IntN(16)
		add(1+rng.IntN(256), b, b*300+rng.IntN(256))
	}
	return steps
}

func table(base, prefill, token, context float64) *profile.Profile {
	return &profile.Profile{Cost: profile.Cost{Base: base, Prefill: prefill, PrefillToken: token, ContextToken: context,
		Decode: []profile.Point{{Batch: 1, Time: 1e6}, {Batch: 2, Time: 1.5e6}, {Batch: 4, Time: 4e6}, {Batch: 8, Time: 7e6}, {Batch: 16, Time: 9e6}}}}
}

// Without noise the regression finds the very figures; only what base and the decode of one have apart is told by prefill alone.
func TestFitFindsTheProfile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := func(name string, most float64) float64 { return rapid.Float64Range(0, most).Draw(t, name) }
		base := ns("base", 1e7)
		p := table(base, rapid.Float64Range(-base, 1e7).Draw(t, "prefill"), 1e4+ns("token", 1e6), ns("context", 2000))
		f, err := Cost(synthetic(p, 0, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))), batches, 1)
		if err != nil {
			t.Fatal(err)
		}
		near := func(key string, got, want, scale float64) {
			if math.Abs(got-want) > 1e-3*scale+100 {
				t.Fatalf("%s is %v, want %v", key, got, want)
			}
		}
		near("base", f.Cost.Base, p.Cost.Base, 1e7)
		near("prefill", f.Cost.Prefill, p.Cost.Prefill, 1e7)
		near("token", f.Cost.PrefillToken, p.Cost.PrefillToken, p.Cost.PrefillToken)
		near("context", f.Cost.ContextToken, p.Cost.ContextToken, 2000)
		for i, d := range f.Cost.Decode {
			near("decode", d.Time, p.Cost.Decode[i].Time, 1e7)
		}
		if f.Fit.R2 < 0.9999 || f.Fit.ErrorP95 > 1e-3 {
			t.Fatalf("%+v", f.Fit)
		}
	})
}

// Noise stays in the residuals, and what something else on the machine held up does not get into the figures.
func TestFitUnderNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	p := table(4e6, 1e6, 2e5, 300)
	steps := synthetic(p, 0.02, rng)
	hit := 0
	for i := range steps {
		if i%4 == 0 {
			steps[i].Took = time.Duration(float64(steps[i].Took)*1.5) + time.Duration(rng.IntN(100))*time.Millisecond
			hit++
		}
	}
	f, err := Cost(steps, batches, 1)
	if err != nil {
		t.Fatal(err)
	}
	if f.Disturbed < hit*6/10 || f.Disturbed > hit+len(steps)/50 {
		t.Errorf("%d of %d disturbed steps were seen", f.Disturbed, hit)
	}
	for _, c := range [][3]int{{256, 0, 256}, {0, 1, 200}, {0, 16, 4000}, {128, 8, 2500}} {
		got, want := (&profile.Profile{Cost: f.Cost}).Step(c[0], c[1], c[2]), p.Step(c[0], c[1], c[2])
		if e := float64(got)/float64(want) - 1; math.Abs(e) > 0.03 {
			t.Errorf("%v: %v, want %v", c, got, want)
		}
	}
	if f.Fit.ErrorP50 < 0.005 || f.Fit.ErrorP50 > 0.03 || f.Fit.HeldOut < len(steps)/6 || len(f.Kinds) != 3 {
		t.Errorf("%+v, %+v", f.Fit, f.Kinds)
	}
}

// What is held out is drawn: whatever repeats every fifth step is in the fit, too.
func TestHoldOutIsDrawn(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	steps := synthetic(table(4e6, 1e6, 2e5, 300), 0, rng)
	slow := 0
	for i := range steps {
		if i%5 == 0 { // twice as slow: a kind of experiment that comes every fifth time
			steps[i].Took *= 2
			slow++
		}
	}
	seen := map[float64]bool{}
	for seed := range uint64(4) {
		f, err := Cost(steps, batches, seed)
		if err != nil {
			t.Fatal(err)
		}
		if f.Fit.HeldOut != (len(steps)+4)/5 || f.Disturbed < slow/2 || f.Fit.ErrorP50 > 0.1 {
			t.Errorf("seed %d: %d of %d steps held out; of the others %d disturbed: %+v", seed, f.Fit.HeldOut, len(steps), f.Disturbed, f.Fit)
		}
		seen[f.Fit.MeanBias] = true
	}
	if len(seen) < 2 {
		t.Error("every seed holds out the same steps")
	}
}

// A fit says how many steps it took, of which there are more.
func TestFitTellsWhatItTook(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	var steps []Step
	for len(steps) < 4000 {
		steps = append(steps, synthetic(table(4e6, 1e6, 2e5, 300), 0.01, rng)...)
	}
	f, err := Cost(steps, batches, 1)
	if err != nil || f.Fit.Steps > most {
		t.Errorf("%d of %d steps, a regression takes %d: %v", f.Fit.Steps, len(steps), most/2, err)
	}
	few := steps[:20]
	if got := taken(few); got != 20 {
		t.Errorf("%d of 20", got)
	}
}

func TestNoFit(t *testing.T) {
	all := synthetic(table(1e6, 0, 1e5, 100), 0, rand.New(rand.NewPCG(1, 1)))
	only := func(kind string) (out []Step) {
		for _, s := range all {
			if s.Kind() == kind {
				out = append(out, s)
			}
		}
		return out
	}
	backwards := make([]Step, len(all))
	for i, s := range all {
		if s.Prefill > 0 {
			s.Took = time.Second - time.Duration(s.Prefill)*time.Millisecond
		}
		backwards[i] = s
	}
	for name, steps := range map[string][]Step{"nothing": nil, "prefill only": only("prefill"), "decode only": only("decode"), "backwards": backwards} {
		if _, err := Cost(steps, batches, 1); !errors.Is(err, ErrFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		p := table(0, 0, 0, 0)
		sum := 0.0
		for i, h := range hats(batches, n) {
			sum += h * p.Cost.Decode[i].Time
		}
		if want := p.Step(0, n, 0).Seconds() * 1e9; math.Abs(sum-want) > 1 {
			t.Fatalf("%d: %v by hats, %v by the profile", n, sum, want)
		}
	})
	for _, h := range hats(batches, 0) {
		if h != 0 {
			t.Error("nobody decodes")
		}
	}
}
