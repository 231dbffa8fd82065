package admission_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"pgregory.net/rapid"
)

// demand is one arrival.
type demand struct {
	at         time.Duration
	key        uint64
	meet       float64
	cost       time.Duration
	guaranteed bool
}

func (d *demand) density() float64 {
	if d.guaranteed {
		return math.Inf(1)
	}
	return d.meet / d.cost.Seconds()
}

// ledger is a Price that keeps everything in a list, and sorts it whenever it is asked.
type ledger struct {
	cfg   admission.PriceConfig
	begun bool
	start time.Duration
	cut   time.Duration
	all   []demand
	part  float64 // of the engines' time
}

func (l *ledger) pass(now time.Duration) {
	if !l.begun {
		l.begun, l.start, l.cut = true, now, -1<<62
	}
	var kept []demand
	for i, d := range l.all {
		newest := len(l.all)-i <= l.cfg.MinArrivals
		if age := now - d.at; age <= l.cfg.Window || newest && age <= l.cfg.MaxWindow {
			kept = append(kept, d)
		}
	}
	l.all = kept
}

func (l *ledger) add(d demand) {
	l.pass(d.at)
	if i := slices.IndexFunc(l.all, func(o demand) bool { return o.key == d.key }); d.key != 0 && i >= 0 {
		l.all[i].guaranteed = l.all[i].guaranteed || d.guaranteed
		return
	}
	if len(l.all) == l.cfg.MaxArrivals {
		l.cut = l.all[0].at
		l.all = l.all[1:]
	}
	l.all = append(l.all, d)
}

func (l *ledger) span(now time.Duration) time.Duration {
	w := l.cfg.Window
	switch n := len(l.all); {
	case n < l.cfg.MinArrivals:
		w = min(max(w, now-l.start), l.cfg.MaxWindow)
	case n == l.cfg.MinArrivals:
		w = max(w, now-l.all[0].at)
	}
	return min(w, now-l.cut)
}

// dual returns the capacity, what is asked for, and the density of the first that does not fit, 0 if all do; in seconds.
func (l *ledger) dual(now time.Duration, workers int) (capacity, sum, lambda float64) {
	l.pass(now)
	capacity = l.part * float64(workers) * l.cfg.Utilisation * l.span(now).Seconds()
	sorted := slices.Clone(l.all)
	slices.SortFunc(sorted, func(a, b demand) int { return cmp.Compare(b.density(), a.density()) })
	for _, d := range sorted {
		sum += d.cost.Seconds()
		if sum > capacity+1e-9 && lambda == 0 { // costs are whole milliseconds
			lambda = d.density()
		}
	}
	return capacity, sum, lambda
}

// seconds draws a time of whole milliseconds, so that sums are exact enough to compare with.
func seconds(t *rapid.T, label string, least, most float64) time.Duration {
	return time.Duration(rapid.Float64Range(least, most).Draw(t, label)*1000) * time.Millisecond
}

func TestPriceIsTheDualOfTheKnapsack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := admission.DefaultPrice()
		cfg.Every = 0
		cfg.Window = seconds(t, "window", 1, 20)
		cfg.MaxWindow = cfg.Window * time.Duration(rapid.IntRange(1, 4).Draw(t, "max"))
		cfg.MinArrivals = rapid.IntRange(1, 10).Draw(t, "least")
		cfg.MaxArrivals = cfg.MinArrivals + rapid.IntRange(0, 30).Draw(t, "room")
		cfg.Weight = rapid.SampledFrom([]float64{0.5, 1}).Draw(t, "weight")
		cfg.Utilisation = rapid.SampledFrom([]float64{0.5, 1, 2}).Draw(t, "utilisation")
		p, err := admission.NewPrice(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l := &ledger{cfg: cfg, part: rapid.SampledFrom([]float64{1, 0.5, 0.2}).Draw(t, "part")}
		p.Sell(l.part)
		now := seconds(t, "start", 0, 100)
		for range rapid.IntRange(1, 80).Draw(t, "arrivals") {
			now += seconds(t, "gap", 0, rapid.SampledFrom([]float64{0.01, 1, 10}).Draw(t, "pace"))
			d := demand{at: now, key: rapid.Uint64Range(0, 20).Draw(t, "key"), meet: rapid.Float64Range(0.01, 1).Draw(t, "meet"),
				cost: time.Millisecond + seconds(t, "cost", 0, 5), guaranteed: rapid.IntRange(0, 9).Draw(t, "guaranteed") == 0}
			p.Add(now, d.key, d.meet, d.cost, d.guaranteed)
			l.add(d)
			now += seconds(t, "pause", 0, 0.1)
			workers := rapid.IntRange(0, 4).Draw(t, "workers")
			got := p.Lambda(now, workers)
			capacity, sum, want := l.dual(now, workers)
			want *= cfg.Weight
			if n, span := p.Arrivals(now); n != len(l.all) || span != l.span(now) {
				t.Fatalf("%d arrivals in %v, want %d in %v", n, span, len(l.all), l.span(now))
			}
			if math.Abs(sum-capacity) < 1e-6 {
				continue // it fits but for rounding, or does not
			}
			if r := p.Demand(now, workers); capacity > 0 && math.Abs(r-sum/capacity) > 1e-9*r {
				t.Fatalf("demand %v, want %v of %v", r, sum, capacity)
			}
			switch {
			case sum < capacity && got != 0:
				t.Fatalf("λ is %v although %v fit %v", got, sum, capacity)
			case math.IsInf(want, 1) && got != cfg.Weight*math.Ldexp(1, 20):
				t.Fatalf("λ is %v although what was promised does not fit", got)
			case !math.IsInf(want, 1) && math.Abs(got-want) > want/64:
				t.Fatalf("λ is %v, want %v", got, want)
			}
		}
	})
}

func TestPriceIsMonotoneInDemand(t *testing.T) {
	cfg := admission.DefaultPrice()
	cfg.Every, cfg.MinArrivals, cfg.MaxArrivals, cfg.Weight = 0, 1, 100, 1
	arrival := rapid.Custom(func(t *rapid.T) demand {
		cost := rapid.Int64Range(1, int64(20*time.Second)).Draw(t, "cost")
		return demand{meet: rapid.Float64Range(0, 1).Draw(t, "meet"), cost: time.Duration(cost),
			guaranteed: rapid.IntRange(0, 9).Draw(t, "guaranteed") == 0}
	})
	rapid.Check(t, func(t *rapid.T) {
		p, err := admission.NewPrice(cfg)
		if err != nil {
			t.Fatal(err)
		}
		workers := rapid.IntRange(0, 3).Draw(t, "workers")
		last := 0.0
		for _, d := range rapid.SliceOfN(arrival, 1, 60).Draw(t, "arrivals") {
			p.Add(0, 0, d.meet, d.cost, d.guaranteed)
			got := p.Lambda(0, workers)
			if got < last {
				t.Fatalf("%v more lowers λ from %v to %v", d, last, got)
			}
			if more := p.Lambda(0, workers+1); more > got {
				t.Fatalf("λ rises from %v to %v with another worker", got, more)
			}
			last = got
		}
	})
}

// A price that is told no part of the time sells all of it.
func TestPriceSellsAllOrAPart(t *testing.T) {
	cfg := admission.DefaultPrice()
	cfg.Every = 0
	p, err := admission.NewPrice(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Add(0, 0, 1, time.Minute, false)
	all := p.Demand(0, 1)
	for part, want := range map[float64]float64{0.25: 4 * all, 1: all, 0: all, -1: all, 3: all, math.NaN(): all} {
		p.Sell(part)
		if got := p.Demand(0, 1); math.Abs(got-want) > 1e-6*want {
			t.Errorf("demand is %v of the part %v, want %v", got, part, want)
		}
	}
}

func TestPriceOfOddValues(t *testing.T) {
	cfg := admission.DefaultPrice()
	cfg.Every, cfg.MinArrivals = 0, 1
	for _, meet := range []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300, 1e-300} {
		for _, cost := range []time.Duration{math.MinInt64, 0, 1, math.MaxInt64} {
			p, err := admission.NewPrice(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				p.Add(0, 0, meet, cost, false)
			}
			if l := p.Lambda(0, 0); !(l >= 0) || math.IsInf(l, 0) {
				t.Errorf("λ is %v for p=%v, cost=%v", l, meet, cost)
			}
			if l := p.Lambda(time.Hour, 1); l != 0 {
				t.Errorf("λ is %v after an hour of nothing", l)
			}
			if n, _ := p.Arrivals(time.Hour); n != 0 {
				t.Errorf("%d arrivals after an hour of nothing", n)
			}
		}
	}
}

func TestPriceIsComputedNotMoreOftenThanEvery(t *testing.T) {
	cfg := admission.DefaultPrice()
	cfg.Every, cfg.MinArrivals = time.Second, 1
	p, err := admission.NewPrice(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Lambda(0, 1)
	p.Add(0, 0, 1, time.Minute, false)
	if l := p.Lambda(time.Second-1, 1); l != 0 {
		t.Errorf("λ is %v before a second has passed", l)
	}
	if l := p.Lambda(time.Second, 1); l == 0 {
		t.Error("λ is 0 after a second")
	}
	if l := p.Lambda(-time.Hour, 1); l == 0 { // as if time stood still
		t.Error("λ changes when time goes back")
	}
}

// A second of arrivals at 1,000 a second in a full window, a quarter of them retries.
//
//	go test ./ingress/admission -run - -bench BenchmarkPrice -benchmem
func BenchmarkPrice(b *testing.B) {
	cfg := admission.DefaultPrice()
	p, err := admission.NewPrice(cfg)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	now, key := time.Duration(0), uint64(0)
	arrive := func() {
		now += time.Millisecond
		if rng.IntN(4) > 0 {
			key++
		}
		p.Add(now, key, rng.Float64(), time.Duration(1+rng.IntN(int(time.Second))), false)
	}
	for range 3 * cfg.MaxArrivals {
		arrive()
	}
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			arrive()
		}
	})
	b.Run("lambda", func(b *testing.B) { // recomputed each time
		b.ReportAllocs()
		for b.Loop() {
			now += cfg.Every
			p.Add(now, 0, rng.Float64(), time.Minute, false)
			p.Lambda(now, 4)
		}
	})
}
