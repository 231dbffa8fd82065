package predictor_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/length"
)

// Meet is the sum over the lengths, written out.
func TestMeetIsTheSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	l := learned(rng, 4)
	residual := normal{0.1, 0.3}
	var f predictor.Forecast
	for range 50 {
		e, s := busy(rng, "mock", t, rng.IntN(25), rng.IntN(40))
		s.E2E, s.TTFT = time.Duration(rng.IntN(30e9)), time.Duration(rng.IntN(15e9))
		simulate(t, &f, e, s, l)
		o := f.Outlook(e, s, l, predictor.Residuals{New: residual}, predictor.Margin{})
		var d length.Dist
		l.Remaining(s.Lengths, 0, s.CapTokens, &d)
		meet, cost := 0.0, 0.0
		for i := range d.N {
			x := math.Min(float64(s.TTFT)/f.First(), float64(s.E2E)/f.At(d.Tokens[i]))
			meet += d.Prob[i] * residual.CDF(math.Log(x))
			cost += d.Prob[i] * f.Cost(d.Tokens[i])
		}
		if math.Abs(o.Meet-meet) > 1e-9 || math.Abs(float64(o.Cost)-cost) > 2 {
			t.Fatalf("meets with %v at %v, want %v at %v", o.Meet, float64(o.Cost), meet, cost)
		}
		if o.MeetIdle < o.Meet-1e-9 {
			t.Fatalf("meets with %v, on an idle engine with %v", o.Meet, o.MeetIdle)
		}
		if o.Level != 0 || o.Bound != 0 || o.BoundIdle != 0 || o.Breaks {
			t.Fatalf("bound without a margin: %+v", o)
		}
	}
}

func TestNoObjectives(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	e, s := busy(rng, "mock", t, 10, 0)
	s.E2E, s.TTFT = 0, 0
	for i := range e.Running {
		e.Running[i].E2E, e.Running[i].TTFT = 0, 0
	}
	var f predictor.Forecast
	l := learned(rng, 4)
	simulate(t, &f, e, s, l)
	o := f.Outlook(e, s, l, predictor.Residuals{New: normal{0, 0.2}}, predictor.Margin{Upper: 0.5, UpperIdle: 0.3, UpperOthers: 0.5, Level: 0.9})
	if o.Meet != 1 || o.MeetIdle != 1 || o.Harm != 0 || o.Drain != 0 || o.Breaks {
		t.Fatalf("%+v", o)
	}
	if want := time.Duration(math.Exp(0.5) * float64(o.Predicted)); math.Abs(float64(o.Bound-want)) > 1e4 || o.Level != 0.9 {
		t.Fatalf("bound %v at %v, want %v", o.Bound, o.Level, want)
	}
}

// one is an engine where a single sequence decodes 100 tokens more, and a long prompt comes.
func one(t *testing.T, e2e time.Duration, guaranteed bool) (*predictor.Engine, *predictor.Sequence) {
	p := open(t, "mock") // a step of one that decodes takes 10.25 ms, 1,000 tokens of prefill 250 ms more
	e := &predictor.Engine{Profile: p, Plan: p.Batch(), FreePages: 2000, StepLeft: time.Millisecond,
		Running: []predictor.Sequence{{PromptTokens: 100, OutputTokens: 50, CapTokens: 150, Lengths: 150, E2E: e2e, Guaranteed: guaranteed}}}
	return e, &predictor.Sequence{PromptTokens: 1000, PrefillTokens: 1000, CapTokens: 50, Lengths: 50, E2E: time.Minute}
}

// One that ends after 1.02 s alone ends after 1.28 s with the new request: it loses what lies between, and its promise if that lies
// between.
func TestHarm(t *testing.T) {
	exact := normal{0, 0.01}
	m := predictor.Margin{Upper: 0.02, UpperIdle: 0.02, UpperOthers: 0.02, Level: 0.9}
	for _, x := range []struct {
		e2e    time.Duration
		harm   float64
		breaks bool
	}{
		{800 * time.Millisecond, 0, false}, // lost anyway
		{1150 * time.Millisecond, 1, true},
		{2 * time.Second, 0, false},
	} {
		for _, guaranteed := range []bool{false, true} {
			e, s := one(t, x.e2e, guaranteed)
			var f predictor.Forecast
			simulate(t, &f, e, s, fixed{})
			o := f.Outlook(e, s, fixed{}, predictor.Residuals{New: exact}, m)
			if math.Abs(o.Harm-x.harm) > 0.01 || o.Breaks != (x.breaks && guaranteed) {
				t.Errorf("objective %v, guaranteed %v: %+v; others %+v", x.e2e, guaranteed, o, f.Others)
			}
		}
	}
}

// Each residual and each margin is of what it says: of the new request, of an idle engine, of the others.
func TestResidualsAndMarginsApart(t *testing.T) {
	e, s := one(t, 1150*time.Millisecond, true)
	s.E2E = 900 * time.Millisecond
	var f predictor.Forecast
	simulate(t, &f, e, s, fixed{})
	plain, late := normal{0, 0.1}, normal{0.2, 0.1}
	margin := predictor.Margin{Upper: 0.3, UpperIdle: 0.3, UpperOthers: -0.5, Level: 0.9}
	base := f.Outlook(e, s, fixed{}, predictor.Residuals{New: plain}, margin)
	for _, x := range []struct {
		name                              string
		r                                 predictor.Residuals
		m                                 predictor.Margin
		meet, meetIdle, harm              bool // differ
		bound, boundIdle, breaks, predict bool
	}{
		{name: "as the new request", r: predictor.Residuals{New: plain, Idle: plain, Others: plain}, m: margin},
		{name: "new", r: predictor.Residuals{New: late, Idle: plain, Others: plain}, m: margin, meet: true, predict: true},
		{name: "idle", r: predictor.Residuals{New: plain, Idle: late}, m: margin, meetIdle: true},
		{name: "others", r: predictor.Residuals{New: plain, Others: late}, m: margin, harm: true},
		{name: "upper", r: predictor.Residuals{New: plain}, m: predictor.Margin{Upper: 0.4, UpperIdle: 0.3, UpperOthers: -0.5, Level: 0.9}, bound: true},
		{name: "upper idle", r: predictor.Residuals{New: plain}, m: predictor.Margin{Upper: 0.3, UpperIdle: 0.4, UpperOthers: -0.5, Level: 0.9}, boundIdle: true},
		{name: "upper others", r: predictor.Residuals{New: plain}, m: predictor.Margin{Upper: 0.3, UpperIdle: 0.3, UpperOthers: 0, Level: 0.9}, breaks: true},
	} {
		o := f.Outlook(e, s, fixed{}, x.r, x.m)
		for what, c := range map[string][2]bool{"meet": {o.Meet != base.Meet, x.meet}, "meet idle": {o.MeetIdle != base.MeetIdle, x.meetIdle},
			"harm": {o.Harm != base.Harm, x.harm}, "bound": {o.Bound != base.Bound, x.bound}, "bound idle": {o.BoundIdle != base.BoundIdle, x.boundIdle},
			"breaks": {o.Breaks != base.Breaks, x.breaks}, "predicted": {o.Predicted != base.Predicted, x.predict}} {
			if c[0] != c[1] {
				t.Errorf("%s: %s differs: %v", x.name, what, c[0])
			}
		}
	}
}

// A short answer harms less than its cap would.
func TestHarmIsOfTheLengthToBeExpected(t *testing.T) {
	e, s := one(t, 1340*time.Millisecond, false)
	s.CapTokens = 1000
	var f predictor.Forecast
	harm := func(n int32) float64 {
		s.Lengths = n
		simulate(t, &f, e, s, fixed{})
		return f.Outlook(e, s, fixed{}, predictor.Residuals{New: normal{0, 0.01}}, predictor.Margin{}).Harm
	}
	e.Profile.Cost.Decode[1].Time = 2e6 // the second that decodes costs 1.75 ms a step
	if short, long := harm(2), harm(1000); short > 0.1 || long < 0.9 {
		t.Fatalf("an answer of 2 tokens harms by %v, of 1,000 by %v", short, long)
	}
}

// A request that comes when the drain is over meets its objectives, one that comes well before does not.
func TestDrain(t *testing.T) {
	l := fixed{}
	rng := rand.New(rand.NewPCG(3, 1))
	met := 0
	for range 40 {
		e, s := busy(rng, "seed-laptop", t, 24, 10+rng.IntN(30))
		for _, q := range [][]predictor.Sequence{e.Running, e.Waiting} {
			for i := range q {
				q[i].Lengths = q[i].OutputTokens + 1 + int32(rng.IntN(150))
			}
		}
		s.Lengths, s.CapTokens, s.TTFT, s.E2E = 30, 30, 0, 8*time.Second
		var f predictor.Forecast
		simulate(t, &f, e, s, l)
		exact := normal{0, 1e-6}
		drain := f.Outlook(e, s, l, predictor.Residuals{New: exact}, predictor.Margin{}).Drain
		if late := f.At(30) > 8e9; late != (drain > 0) {
			t.Fatalf("late is %v, drain %v", late, drain)
		}
		if drain == 0 {
			continue
		}
		// The same request that is allowed as much more time now is one that comes as much later.
		s.E2E += drain + drain/50
		if o := f.Outlook(e, s, l, predictor.Residuals{New: exact}, predictor.Margin{}); o.Meet > 0.5 && o.Drain == 0 {
			met++
		} else {
			t.Fatalf("with %v more: %+v", drain, o)
		}
		// An engine where nothing waits, and half of the rest has ended, is freer.
		half := *e
		half.Waiting, half.Running = nil, slices.Clone(e.Running[:12])
		s.E2E = 8 * time.Second
		simulate(t, &f, &half, s, l)
		if o := f.Outlook(&half, s, l, predictor.Residuals{New: exact}, predictor.Margin{}); o.Drain >= drain {
			t.Fatalf("drains in %v when half of it is there, in %v when all is", o.Drain, drain)
		}
	}
	if met == 0 {
		t.Fatal("nothing had to drain")
	}
}
