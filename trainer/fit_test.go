package trainer_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/trainer"
)

func expect(t *testing.T, want error, of func() error) {
	t.Helper()
	if err := of(); !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// The model takes most of what the physics is off by; its bounds are better quantiles than those of every baseline, and most are tighter.
// (A mean in seconds would praise bounds that miss where latencies are long.)
func TestModelIsBetterThanBaselines(t *testing.T) {
	f := split(t, synthetic(11, 8, 4, 200), 1)
	m := fit(t, f, quick(0.1))
	own, physics := trainer.MedianError(f.Test, func(k *trainer.Known) float64 { r, _ := m.Residual(k); return r }), trainer.MedianError(f.Test, nil)
	t.Logf("median |log error| %.3f, of the physics %.3f", own, physics)
	if own > 0.2*physics {
		t.Errorf("the model leaves %.3f of %.3f", own, physics)
	}
	constant, err := trainer.Constant(f.Calibrate)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := trainer.Physics(f.Calibrate)
	if err != nil {
		t.Fatal(err)
	}
	throughput, err := trainer.Throughput(f.Fit, f.Calibrate)
	if err != nil {
		t.Fatal(err)
	}
	for _, alpha := range []float64{0.2, 0.05} {
		mine := report(t, f.Test, m, m.Deciles, alpha)
		for name, b := range map[string]trainer.Bounder{"constant": constant, "physics": plain, "throughput": throughput} {
			r := report(t, f.Test, b, m.Deciles, alpha)
			t.Logf("alpha %v: pinball %.4f, median bound %.2f s; %s: %.4f, %.2f s", alpha, mine.Pinball, mine.All.MedianBound, name, r.Pinball, r.All.MedianBound)
			if r.Pinball < 2*mine.Pinball || r.All.MedianBound < mine.All.MedianBound {
				t.Errorf("alpha %v: %s has %.4f and %.2f s", alpha, name, r.Pinball, r.All.MedianBound)
			}
		}
	}
	if _, ok := m.Bound(&f.Test[0].Known, 1e-6); ok {
		t.Error("a bound at a level that no rows are enough for")
	}
}

// Bounds hold at their level on rounds that were held out, over many draws of all rows: together, where the model does not support a
// row, and in each group. Rows of one draw share their calibration, so that the draw is what intervals are clustered by.
func TestBoundsHold(t *testing.T) {
	const draws = 10
	type part struct {
		alpha float64
		group conformal.Group
		what  string
	}
	runs := map[part]*[draws]conformal.Coverage{}
	for seed := range draws {
		f := split(t, synthetic(100+uint64(seed), 4, 4, 150), seed%trainer.Rotations)
		m := fit(t, f, quick(0.1))
		for i := range f.Test {
			r := &f.Test[i]
			_, supported := m.Residual(&r.Known)
			for _, alpha := range []float64{0.2, 0.05} {
				bound, ok := m.Bound(&r.Known, alpha)
				v := conformal.Hit
				if !ok || r.Latency() > bound {
					v = conformal.Miss
				}
				parts := []part{{alpha: alpha, what: "all"}, {alpha: alpha, group: m.Group(&r.Known), what: "group"}}
				if !supported {
					parts = append(parts, part{alpha: alpha, what: "outside"})
				}
				for _, p := range parts {
					if runs[p] == nil {
						runs[p] = new([draws]conformal.Coverage)
					}
					runs[p][seed].Add(v)
				}
			}
		}
	}
	if len(runs) != 2*(1+1+20) {
		t.Errorf("%d parts", len(runs))
	}
	for p, of := range runs {
		low, high, err := conformal.Clustered(of[:], 0.999) // there are 44
		if err != nil {
			t.Fatal(err)
		}
		if sum := conformal.Total(of[:]); high < 1-p.alpha {
			t.Errorf("%+v: coverage is %.3f of %d, in [%.3f, %.3f]", p, float64(sum.Hits)/float64(sum.Rows()), sum.Rows(), low, high)
		} else if p.what != "group" {
			t.Logf("%+v: coverage is %.3f of %d, in [%.3f, %.3f]", p, float64(sum.Hits)/float64(sum.Rows()), sum.Rows(), low, high)
		}
	}
}

func report(t fataler, rows []trainer.Row, b trainer.Bounder, d conformal.Deciles, alpha float64) trainer.Report {
	r, err := trainer.Evaluate(rows, b, d, alpha)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Outside of what was learned from, the residual is 0 and the margin is that of such rows, or where they are too few for the level the
// physics' on all rows.
func TestOutsideOfTheRowsIsThePhysics(t *testing.T) {
	f := split(t, synthetic(13, 4, 2, 200), 0)
	c := quick(0.1)
	c.MinSupport = 0 // ranges alone
	m := fit(t, f, c)
	var outside []trainer.Row
	for _, r := range f.Calibrate {
		if _, ok := m.Residual(&r.Known); !ok {
			outside = append(outside, r)
		}
	}
	if n := len(outside); n < conformal.MinRows(0.1) || n >= conformal.MinRows(0.01) {
		t.Fatalf("%d rows of the calibration are outside", n)
	}
	k := f.Test[0].Known
	k.Features = slices.Clone(k.Features)
	k.Features[feature.Waiting] = 1000
	if r, ok := m.Residual(&k); r != 0 || ok {
		t.Errorf("far outside the residual is %v, supported: %v", r, ok)
	}
	for alpha, rows := range map[float64][]trainer.Row{0.1: outside, 0.01: f.Calibrate} {
		plain, err := trainer.Physics(rows)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := plain.Bound(&k, alpha)
		if got, ok := m.Bound(&k, alpha); !ok || got != want {
			t.Errorf("far outside the bound at %v is %v, %v, the physics' is %v", alpha, got, ok, want)
		}
	}
}

// Rows whose client left do not teach the model, and as lower bounds they can only widen the margin.
func TestCensoredRows(t *testing.T) {
	f := split(t, synthetic(17, 4, 2, 200), 0)
	m := fit(t, f, quick(0.1))
	left := slices.Clone(f.Fit)
	for _, r := range f.Fit[:100] {
		r.Censored, r.Label = true, -5
		left = append(left, r)
	}
	again := fit(t, trainer.Folds{Fit: left, Calibrate: f.Calibrate}, quick(0.1))
	if !bytes.Equal(again.Model.Encode(nil), m.Model.Encode(nil)) {
		t.Error("rows that were left have taught the model")
	}
	long := slices.Clone(f.Calibrate)
	for i := range long {
		if i%5 == 0 {
			long[i].Censored = true
			long[i].Label += 2
		}
	}
	wider := fit(t, trainer.Folds{Fit: f.Fit, Calibrate: long}, quick(0.1))
	a, _ := m.Bound(&f.Test[0].Known, 0.1)
	if b, ok := wider.Bound(&f.Test[0].Known, 0.1); !ok || b <= a {
		t.Errorf("the bound is %v where clients waited long before they left, else %v", b, a)
	}
}

// Rows count by their weights: those admitted with probability ¼ as four of those that always are.
func TestWeightsStandForRows(t *testing.T) {
	f := split(t, synthetic(19, 4, 2, 150), 0)
	var weighted, repeated []trainer.Row
	for i, r := range f.Calibrate {
		n := 1 + 3*(i%2)
		r.Weight = float64(n)
		weighted = append(weighted, r)
		for r.Weight = 1; n > 0; n-- {
			repeated = append(repeated, r)
		}
	}
	a, err := trainer.Physics(weighted)
	if err != nil {
		t.Fatal(err)
	}
	b, err := trainer.Physics(repeated)
	if err != nil {
		t.Fatal(err)
	}
	for _, alpha := range []float64{0.3, 0.1, 0.02} {
		x, okX := a.Bound(&f.Test[0].Known, alpha)
		y, okY := b.Bound(&f.Test[0].Known, alpha)
		if !okX || !okY || x != y {
			t.Errorf("alpha %v: %v weighted, %v repeated", alpha, x, y)
		}
	}
}

func header(t fataler) artifact.Header {
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	return artifact.Header{Created: day, Code: "test", Backend: "mock/1", Profile: p, From: day, To: day}
}

// Equal rows and seeds give equal files; another seed gives another. What a file says is what the candidate says.
func TestArtifactIsTheCandidate(t *testing.T) {
	f := split(t, synthetic(23, 4, 4, 250), 2)
	c := quick(0.1)
	c.Params.RowFraction, c.Params.FeatureFraction = 0.7, 0.7
	file := func(seed uint64) []byte {
		m, err := trainer.Fit(f.Fit, f.Calibrate, c, rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		h, rep := header(t), report(t, f.Test, m, m.Deciles, 0.1)
		h.Coverage = rep.Cells(2)
		a, err := m.Artifact(h, length.New(1, 0).State())
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := file(1)
	if !bytes.Equal(b, file(1)) {
		t.Error("the same rows and seed give another file")
	}
	if bytes.Equal(b, file(2)) {
		t.Error("another seed gives the same file")
	}
	a, err := artifact.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Header.Compatible("mock/1", feature.Table()); err != nil {
		t.Error(err)
	}
	cells := a.Header.Coverage
	if len(cells) < 10 || cells[0].Fold != 2 || cells[0].Group != nil || cells[0].Coverage.Rows() != len(f.Test) || cells[9].Group == nil {
		t.Errorf("the table of coverage is %+v", cells)
	}
	m, err := trainer.Fit(f.Fit, f.Calibrate, c, rand.New(rand.NewPCG(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := conformal.ImportGroups(a.Calibration.Supported, nil)
	if err != nil {
		t.Fatal(err)
	}
	physics, err := conformal.Import(a.Calibration.Physics)
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for i := range f.Test {
		k := &f.Test[i].Known
		var residual, q float64
		if ok, _ := a.Model.Supported(k.Features, a.Calibration.MinSupport); ok {
			residual = a.Model.Predict(k.Features)
			var mine bool
			q, mine, _ = groups.Quantile(conformal.Group{Class: k.Class, Decile: a.Calibration.Deciles.Of(k.Load)})
			if mine {
				own++
			}
		} else {
			q, _ = physics.Quantile()
		}
		got := k.Predicted * math.Exp(residual+q)
		if want, ok := m.Bound(k, 0.1); !ok || math.Abs(got/want-1) > 1e-12 {
			t.Fatalf("row %d: the file says %v, the candidate %v", i, got, want)
		}
	}
	if own == 0 {
		t.Error("no row has the bound of its group")
	}
	expect(t, conformal.ErrLevel, func() error {
		c := quick(1e-4)
		m, err := trainer.Fit(f.Fit, f.Calibrate, c, nil)
		if err != nil {
			return err
		}
		_, err = m.Artifact(header(t), length.State{})
		return err
	})
}

func TestFitRefuses(t *testing.T) {
	f := split(t, synthetic(29, 4, 1, 30), 0)
	for name, c := range map[string]struct {
		change func(*trainer.Config)
		want   error
	}{
		"features": {func(c *trainer.Config) { c.Features = nil }, trainer.ErrConfig},
		"hold out": {func(c *trainer.Config) { c.HoldOut = math.NaN() }, trainer.ErrConfig},
		"support":  {func(c *trainer.Config) { c.MinSupport = -1 }, trainer.ErrConfig},
		"alpha":    {func(c *trainer.Config) { c.Alpha = 1 }, trainer.ErrConfig},
		"window":   {func(c *trainer.Config) { c.Window = 0 }, trainer.ErrConfig},
		"params":   {func(c *trainer.Config) { c.Params.Bins = 1 }, trainer.ErrConfig},
		"other":    {func(c *trainer.Config) { c.Features = c.Features[:3] }, trainer.ErrRow},
		"no rng":   {func(c *trainer.Config) { c.Params.RowFraction = 0.5 }, trainer.ErrFit},
	} {
		cfg := quick(0.1)
		c.change(&cfg)
		if _, err := trainer.Fit(f.Fit, f.Calibrate, cfg, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, change := range map[string]func(*trainer.Row){
		"feature":    func(r *trainer.Row) { r.Features = append([]float32{float32(math.NaN())}, r.Features[1:]...) },
		"prediction": func(r *trainer.Row) { r.Predicted = 0 },
		"label":      func(r *trainer.Row) { r.Label = math.Inf(1) },
		"weight":     func(r *trainer.Row) { r.Weight = 0.5 },
		"load":       func(r *trainer.Row) { r.Load = math.NaN() },
	} {
		rows := slices.Clone(f.Fit)
		change(&rows[3])
		if _, err := trainer.Fit(rows, f.Calibrate, quick(0.1), nil); !errors.Is(err, trainer.ErrRow) {
			t.Errorf("%s: %v, want %v", name, err, trainer.ErrRow)
		}
	}
	expect(t, trainer.ErrFit, func() error { _, err := trainer.Fit(f.Fit, nil, quick(0.1), nil); return err })
	expect(t, trainer.ErrFit, func() error { _, err := trainer.Throughput(nil, f.Calibrate); return err })
}

// BenchmarkFit fits 10,000 rows of all features, calibrates on 5,000 and evaluates on 5,000.
//
//	go test -run ^$ -bench Fit -benchtime 1x ./trainer
func BenchmarkFit(b *testing.B) {
	f := split(b, synthetic(1, 4, 10, 500), 0)
	for b.Loop() {
		m := fit(b, f, trainer.DefaultConfig(0.1))
		b.ReportMetric(report(b, f.Test, m, m.Deciles, 0.1).All.MeanBound, "bound-s")
	}
}
