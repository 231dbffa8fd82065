package feature_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/predictor/profile/profiletest"
	"pgregory.net/rapid"
)

var open = profiletest.Open

// sequence draws a request that has generated nothing.
func sequence(rng *rand.Rand) predictor.Sequence {
	s := predictor.Sequence{PromptTokens: int32(1 + rng.IntN(900)), CapTokens: int32(1 + rng.IntN(500)), Lengths: int32(rng.IntN(2))}
	s.PrefillTokens = int32(1 + rng.IntN(int(s.PromptTokens)))
	return s
}

func engine(p *profile.Profile, rng *rand.Rand, running, waiting int) *predictor.Engine {
	e := &predictor.Engine{Profile: p, Plan: p.Batch(), Slow: math.Exp(rng.NormFloat64() / 4), FreePages: rng.IntN(p.Batch().KVPages + 1),
		Delay: time.Millisecond, Enter: time.Millisecond / 2}
	for range running {
		s := sequence(rng)
		if rng.IntN(3) > 0 {
			s.PrefillTokens, s.OutputTokens = 0, int32(rng.IntN(int(s.CapTokens)))
		}
		e.Running = append(e.Running, s)
	}
	for range waiting {
		e.Waiting = append(e.Waiting, sequence(rng))
	}
	if running > 0 {
		e.StepLeft = time.Duration(1 + rng.IntN(30e6))
	}
	return e
}

func vector(t interface{ Fatal(...any) }, e *predictor.Engine, s *predictor.Sequence, l predictor.Lengths) []float32 {
	var f predictor.Forecast
	if err := f.Simulate(e, s, l); err != nil {
		t.Fatal(err)
	}
	return feature.Append(nil, e, s, l, &f)
}

// What is told of an engine is what the features say, reckoned apart and simply; and nothing that they are made of changes.
func TestFeaturesAreWhatIsKnown(t *testing.T) {
	p := open(t, "seed-laptop")
	l := length.New(2, 0)
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		e := engine(p, rng, rapid.IntRange(0, 24).Draw(t, "running"), rapid.IntRange(0, 40).Draw(t, "waiting"))
		s := sequence(rng)
		before := *e
		before.Running, before.Waiting = slices.Clone(e.Running), slices.Clone(e.Waiting)
		own := s
		x := vector(t, e, &s, l)
		if !reflect.DeepEqual(before, *e) || s != own {
			t.Fatal("the arguments have changed")
		}
		if len(x) != feature.Count || len(feature.Table()) != feature.Count || len(feature.Signs()) != feature.Count {
			t.Fatalf("%d features", len(x))
		}
		want := map[int]float64{
			feature.PromptTokens: float64(s.PromptTokens), feature.PrefillTokens: float64(s.PrefillTokens), feature.CapTokens: float64(s.CapTokens),
			feature.CachedTokens: float64(s.PromptTokens - s.PrefillTokens), feature.Running: float64(len(e.Running)) / 24,
			feature.Waiting: float64(len(e.Waiting)) / 24, feature.Free: float64(e.FreePages) / 1024, feature.Slow: e.Slow,
			feature.StepLeft: float64(e.StepLeft) / 12.3e6, feature.MedianTokens: l.Quantile(s.Lengths, 0, s.CapTokens, 0.5),
		}
		for _, r := range slices.Concat(e.Running, e.Waiting) {
			want[feature.BacklogDecode] += float64(r.CapTokens-r.OutputTokens) / 24
			want[feature.BacklogPrefill] += float64(r.PrefillTokens) / 512
		}
		for _, r := range e.Running {
			want[feature.Held] += float64(r.PromptTokens-r.PrefillTokens+r.OutputTokens) / 16384
		}
		for i, w := range want {
			if math.Abs(float64(x[i])-w) > 1e-5*max(1, math.Abs(w)) {
				t.Fatalf("%s is %v, want %v", feature.Table()[i].Name, x[i], w)
			}
		}
		if got, want := feature.Load(x), float64(len(e.Running)+len(e.Waiting))/24; math.Abs(got-want) > 1e-5*max(1, want) {
			t.Fatalf("load is %v, want %v", got, want)
		}
		if x[feature.First] > x[feature.Typical]+1e-5 {
			t.Fatalf("the first token comes after the median length: %v, %v", x[feature.First], x[feature.Typical])
		}
	})
}

// A machine that is in all things k times faster has the same features: they have no dimension of time.
func TestFeaturesHaveNoTime(t *testing.T) {
	p := open(t, "seed-laptop")
	fast := *p
	fast.Cost.Base /= 4
	fast.Cost.PrefillToken /= 4
	fast.Cost.Decode = slices.Clone(p.Cost.Decode)
	for i := range fast.Cost.Decode {
		fast.Cost.Decode[i].Time /= 4
	}
	l := length.New(2, 0)
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		e := engine(p, rng, int(seed)%24, int(seed)%7)
		s := sequence(rng)
		x := vector(t, e, &s, l)
		e.Profile = &fast
		e.StepLeft, e.Delay, e.Enter = e.StepLeft/4, e.Delay/4, e.Enter/4
		for i, v := range vector(t, e, &s, l) {
			if math.Abs(float64(v-x[i])) > 1e-4*max(1, math.Abs(float64(x[i]))) {
				t.Errorf("state %d: %s is %v on a machine four times as fast, else %v", seed, feature.Table()[i].Name, v, x[i])
			}
		}
	}
}

// Whatever the state, features are finite: a model takes nothing else.
func TestOddStatesAreFinite(t *testing.T) {
	p := open(t, "mock")
	l := length.New(1, 0)
	const odd = math.MinInt32
	for _, n := range []int32{odd, -1, 0, 1, math.MaxInt32} {
		s := predictor.Sequence{PromptTokens: n, PrefillTokens: n, CapTokens: n, OutputTokens: n, Lengths: n}
		e := &predictor.Engine{Profile: p, Slow: math.NaN(), FreePages: int(n), StepLeft: time.Duration(n), Delay: time.Duration(n),
			Running: []predictor.Sequence{s, s}, Waiting: []predictor.Sequence{s}}
		for i, v := range vector(t, e, &s, l) {
			if v-v != 0 {
				t.Errorf("%d: %s is %v", n, feature.Table()[i].Name, v)
			}
		}
	}
	e := &predictor.Engine{Slow: math.Inf(1)}
	var none predictor.Forecast // nobody has simulated
	for i, v := range feature.Append(nil, e, &predictor.Sequence{}, l, &none) {
		if v-v != 0 {
			t.Errorf("without a forecast %s is %v", feature.Table()[i].Name, v)
		}
	}
}

func TestNamesAndSigns(t *testing.T) {
	seen := map[string]bool{}
	for i, f := range feature.Table() {
		if f.Name == "" || f.Unit == "" || seen[f.Name] {
			t.Errorf("feature %d is %+v", i, f)
		}
		seen[f.Name] = true
		if f.Sign < -1 || f.Sign > 1 || feature.Signs()[i] != f.Sign {
			t.Errorf("%s has sign %d", f.Name, f.Sign)
		}
	}
	feature.Table()[0].Name = "changed"
	if feature.Table()[0].Name == "changed" {
		t.Error("the table can be changed")
	}
}

// More before a request never lowers a feature that is signed +1, nor raises one that is signed −1.
func TestMoreWorkGoesWithTheSigns(t *testing.T) {
	p := open(t, "elasticserve")
	l := length.New(2, 0)
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		e := engine(p, rng, rapid.IntRange(1, 20).Draw(t, "running"), rapid.IntRange(0, 20).Draw(t, "waiting"))
		s := sequence(rng)
		x := vector(t, e, &s, l)
		switch rapid.IntRange(0, 3).Draw(t, "more") {
		case 0:
			e.Waiting = append(e.Waiting, sequence(rng))
		case 1:
			e.Running = append(e.Running, sequence(rng))
			e.FreePages /= 2
		case 2:
			s.PromptTokens += 50
			s.PrefillTokens += 50
		default:
			s.CapTokens += 50
		}
		for i, v := range vector(t, e, &s, l) {
			if sign := feature.Table()[i].Sign; float32(sign)*(v-x[i]) < 0 {
				t.Fatalf("%s went from %v to %v", feature.Table()[i].Name, x[i], v)
			}
		}
	})
}

func TestAppendAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	e := engine(open(t, "mock"), rng, 24, 40)
	s, l := sequence(rng), length.New(2, 0)
	var f predictor.Forecast
	if err := f.Simulate(e, &s, l); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 0, feature.Count)
	if n := testing.AllocsPerRun(100, func() { x = feature.Append(x[:0], e, &s, l, &f) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAppend24x40 is the features of a request that finds 24 running and 40 waiting, the forecast not counted.
//
//	go test -run ^$ -bench Append24x40 -benchmem ./predictor/feature
func BenchmarkAppend24x40(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 3))
	e := engine(open(b, "mock"), rng, 24, 40)
	s, l := sequence(rng), length.New(2, 0)
	var f predictor.Forecast
	if err := f.Simulate(e, &s, l); err != nil {
		b.Fatal(err)
	}
	x := make([]float32, 0, feature.Count)
	sum := float32(0)
	b.ReportAllocs()
	for b.Loop() {
		x = feature.Append(x[:0], e, &s, l, &f)
		sum += x[feature.First]
	}
	if sum == 0 {
		b.Fatal("no first token")
	}
}
