package trainer_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/trainer"
	"pgregory.net/rapid"
)

// bounder is a function as a Bounder.
type bounder func(k *trainer.Known) (float64, bool)

func (b bounder) Bound(k *trainer.Known, _ float64) (float64, bool) { return b(k) }

// even has latencies that are uniform in (0, 1), of two classes, in ten runs: a constant bound of c covers c.
func even(n int) []trainer.Row {
	rng := rand.New(rand.NewPCG(31, 0))
	rows := make([]trainer.Row, n)
	for i := range rows {
		rows[i] = trainer.Row{Known: trainer.Known{Predicted: 1, Class: uint16(i % 2), Weight: 1}, Run: i % 10, Label: math.Log(rng.Float64())}
	}
	return rows
}

func flat(c float64) bounder { return func(*trainer.Known) (float64, bool) { return c, true } }

// by bounds the classes apart.
func by(a, b float64) bounder {
	return func(k *trainer.Known) (float64, bool) {
		if k.Class == 1 {
			return b, true
		}
		return a, true
	}
}

func TestCompare(t *testing.T) {
	rows, rule := even(4000), trainer.DefaultRule(0.1)
	none := bounder(func(*trainer.Known) (float64, bool) { return 0, false })
	some := bounder(func(k *trainer.Known) (float64, bool) { return 0.9, k.Class == 0 })
	for _, c := range []struct {
		name                 string
		rows                 []trainer.Row
		champion, challenger trainer.Bounder
		want                 trainer.Reason
		swap                 bool
	}{
		{"the same", rows, flat(0.9), flat(0.9), trainer.NotWorse, true},
		{"tighter at the level", rows, flat(0.99), flat(0.91), trainer.NotWorse, true},
		{"tighter by less coverage", rows, flat(0.9), flat(0.8), trainer.Coverage, false},
		{"wider and nothing else", rows, flat(0.9), flat(0.95), trainer.Wider, false},
		{"wider, as the champion falls short", rows, flat(0.7), flat(0.9), trainer.Restores, true},
		{"wider, and falls short as well", rows, flat(0.7), flat(0.8), trainer.Wider, false},
		{"a little wider", rows, flat(0.9), flat(0.91), trainer.NotWorse, true},
		{"one class pays for the other", rows, flat(0.91), by(0.83, 0.99), trainer.InGroup, false},
		{"no bound for some", rows, flat(0.9), some, trainer.LessBounded, false},
		{"a bound for more", rows, some, flat(0.9), trainer.NotWorse, true},
		{"champion without bounds", rows, none, flat(0.9), trainer.NotWorse, true},
		{"champion without bounds, short", rows, none, flat(0.8), trainer.Coverage, false},
		{"both without bounds", rows, none, none, trainer.LessBounded, false},
		{"few rows", rows[:1500], flat(0.99), flat(0.91), trainer.TooFewRows, false},
		{"the first", rows, nil, flat(0.9), trainer.First, true},
		{"the first, short of the level", rows, nil, flat(0.8), trainer.Coverage, false},
		{"the first, not for all", rows, nil, some, trainer.LessBounded, false},
	} {
		o, err := trainer.Compare(c.rows, c.champion, c.challenger, conformal.Deciles{}, rule)
		if err != nil {
			t.Fatal(err)
		}
		if o.Reason != c.want || o.Swap != c.swap || (o.Group != nil) != (c.want == trainer.InGroup) {
			t.Errorf("%s: %v, swap %v, group %v, want %v; width %v", c.name, o.Reason, o.Swap, o.Group, c.want, o.Width)
		}
	}
	o, err := trainer.Compare(rows, flat(0.5), by(0.5, 2), conformal.Deciles{}, rule)
	if err != nil || math.Abs(o.Width-2) > 1e-9 {
		t.Errorf("width %v, want 2: %v", o.Width, err)
	}
	for name, change := range map[string]func(*trainer.Rule){
		"alpha":       func(r *trainer.Rule) { r.Alpha = 0 },
		"rows":        func(r *trainer.Rule) { r.MinRows = 0 },
		"group":       func(r *trainer.Rule) { r.GroupRows = 0 },
		"slack":       func(r *trainer.Rule) { r.Slack = -1 },
		"group slack": func(r *trainer.Rule) { r.GroupSlack = 2 },
		"width":       func(r *trainer.Rule) { r.Width = math.NaN() },
	} {
		bad := rule
		change(&bad)
		t.Run(name, func(t *testing.T) {
			expect(t, trainer.ErrConfig, func() error {
				_, err := trainer.Compare(rows, nil, flat(1), conformal.Deciles{}, bad)
				return err
			})
		})
	}
}

// Of two whose bounds differ by more than the rule overlooks, at most one may take the other's place: otherwise they would take turns.
func TestNoTwoDisplaceEachOther(t *testing.T) {
	rows, rule := even(2500), trainer.DefaultRule(0.1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float64Range(0.3, 1).Draw(t, "a"), rapid.Float64Range(0.3, 1).Draw(t, "b")
		ab, err := trainer.Compare(rows, flat(a), flat(b), conformal.Deciles{}, rule)
		if err != nil {
			t.Fatal(err)
		}
		ba, err := trainer.Compare(rows, flat(b), flat(a), conformal.Deciles{}, rule)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(a/b-1) > 0.03 && ab.Swap && ba.Swap {
			t.Fatalf("%v and %v displace each other", a, b)
		}
		if math.Abs(ab.Width*ba.Width-1) > 1e-9 {
			t.Fatalf("widths %v and %v", ab.Width, ba.Width)
		}
	})
}

// A report is what a loop over the rows counts.
func TestReportIsTheCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rows := even(rapid.IntRange(0, 200).Draw(t, "rows"))
		for i := range rows {
			rows[i].Censored, rows[i].Load = rng.IntN(5) == 0, rng.Float64()
			rows[i].Predicted = rng.Float64() + 0.1
		}
		d := conformal.Deciles{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}
		b := bounder(func(k *trainer.Known) (float64, bool) { return k.Predicted * 0.8, k.Load < 0.95 })
		got := report(t, rows, b, d, 0.2)
		var all, first conformal.Coverage
		unbounded, sum := 0, 0.0
		for i := range rows {
			r := &rows[i]
			if r.Load >= 0.95 {
				unbounded++
				continue
			}
			sum += 0.8 * r.Predicted
			c := conformal.Coverage{Hits: 1}
			if r.Predicted*math.Exp(r.Label) > 0.8*r.Predicted {
				c = conformal.Coverage{Misses: 1}
			} else if r.Censored {
				c = conformal.Coverage{Censored: 1}
			}
			all = all.Plus(c)
			if r.Class == 0 && r.Load < 0.1 {
				first = first.Plus(c)
			}
		}
		if got.All.Coverage != all || got.Unbounded != unbounded || math.Abs(got.All.MeanBound*float64(all.Rows())-sum) > 1e-9 {
			t.Fatalf("%+v, want %+v, %d without a bound", got, all, unbounded)
		}
		if len(got.Groups) > 0 {
			if g := got.Groups[0]; first.Rows() > 0 && (*g.Group != conformal.Group{} || g.Coverage != first) {
				t.Fatalf("the first group is %+v, want %+v", g, first)
			}
		}
		if got.All.Low > got.All.High || got.All.Low < 0 || got.All.High > 1 {
			t.Fatalf("interval [%v, %v]", got.All.Low, got.All.High)
		}
	})
	expect(t, trainer.ErrConfig, func() error { _, err := trainer.Evaluate(nil, flat(1), conformal.Deciles{}, 0); return err })
	expect(t, trainer.ErrRow, func() error {
		_, err := trainer.Evaluate(make([]trainer.Row, 1), flat(1), conformal.Deciles{}, 0.1)
		return err
	})
}

// Where latency is work by rates, throughput arithmetic finds it to the end; the constant is the conformal quantile of the latencies.
func TestBaselines(t *testing.T) {
	f := split(t, synthetic(37, 4, 2, 100), 0)
	for _, rows := range [][]trainer.Row{f.Fit, f.Calibrate, f.Test} {
		for i := range rows {
			x := rows[i].Features
			y := 0.3 + 0.002*float64(x[feature.PrefillTokens]) + 0.5*float64(x[feature.CapTokens])
			rows[i].Label = math.Log(y / rows[i].Predicted)
		}
	}
	b, err := trainer.Throughput(f.Fit, f.Calibrate)
	if err != nil {
		t.Fatal(err)
	}
	c, err := trainer.Constant(f.Calibrate)
	if err != nil {
		t.Fatal(err)
	}
	below := 0
	for i := range f.Test {
		r := &f.Test[i]
		if got, ok := b.Bound(&r.Known, 0.1); !ok || math.Abs(got/r.Latency()-1) > 1e-6 {
			t.Fatalf("row %d: %v, want %v", i, got, r.Latency())
		}
	}
	bound, ok := c.Bound(&f.Test[0].Known, 0.1)
	for i := range f.Calibrate {
		if f.Calibrate[i].Latency() <= bound*(1+1e-9) {
			below++
		}
	}
	if want, _ := conformal.Rank(len(f.Calibrate), 0.1); !ok || below != want {
		t.Errorf("%d of %d latencies are within the constant, want %d", below, len(f.Calibrate), want)
	}
	if other, _ := c.Bound(&f.Test[1].Known, 0.1); other != bound {
		t.Error("the constant is not constant")
	}
}
