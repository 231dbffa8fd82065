package conformal

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	shiftAlpha = 0.1
	shiftSD    = 0.3 // of a log ratio: a latency is within a third of its prediction, mostly
	shiftSize  = 3 * shiftSD
	shiftPre   = 8000
	shiftPost  = 2000
	shiftSeeds = 12
)

// static is split calibration before the shift, never renewed.
type static struct {
	Arm
	q float64
}

func (s static) Quantile() (float64, bool) { return s.q, true }
func (s static) Observe(Row) error         { return nil }

func shiftArms(calibration []Row) []namedArm {
	scores := make([]float64, len(calibration))
	for i, r := range calibration {
		scores[i] = r.Score
	}
	q := must(must(NewSplit(scores)).Quantile(shiftAlpha))
	undiscounted := DefaultSFOGD(shiftAlpha)
	undiscounted.Discount = 1
	return append([]namedArm{{"static", static{q: q}}}, append(arms(shiftAlpha, DefaultWindow, calibration, q),
		namedArm{"dtaci/128", must(NewDtACI(shiftAlpha, DefaultDtACI(shiftAlpha, 500), 128, calibration))},
		namedArm{"sfogd/1", must(NewSFOGD(shiftAlpha, q, undiscounted, DefaultWindow, calibration))})...)
}

// outcomes after a shift, row by row, summed over seeds.
type outcomes struct {
	hits, unbounded []int // per row after the shift; a row without a bound is a hit
	before          int   // hits in the last shiftPost rows before it
	width           float64
	finite          int
}

func (o *outcomes) coverage(from, to int) float64 {
	n := 0
	for _, h := range o.hits[from:to] {
		n += h
	}
	return float64(n) / float64(shiftSeeds*(to-from))
}

// back is the first row from which on 100 rows, pooled over the seeds, are covered within 4 binomial standard errors of the level.
func (o *outcomes) back() int {
	tol := 4 * math.Sqrt(shiftAlpha*(1-shiftAlpha)/(100*shiftSeeds))
	for from := 0; from+100 <= len(o.hits); from += 5 {
		if o.coverage(from, from+100) >= 1-shiftAlpha-tol {
			return from
		}
	}
	return len(o.hits)
}

func shift(t *testing.T, size float64) map[string]*outcomes {
	t.Helper()
	all := map[string]*outcomes{}
	for seed := range uint64(shiftSeeds) {
		rng := rand.New(rand.NewPCG(seed, 100))
		calibration := normalRows(rng, 1000, 0, shiftSD)
		list := shiftArms(calibration)
		for t0 := -shiftPre; t0 < shiftPost; t0++ {
			r := Row{ID: uint64(t0 + shiftPre), Score: shiftSD * rng.NormFloat64()}
			if t0 >= 0 {
				r.Score += size
			}
			for _, a := range list {
				o := all[a.name]
				if o == nil {
					o = &outcomes{hits: make([]int, shiftPost), unbounded: make([]int, shiftPost)}
					all[a.name] = o
				}
				q, ok := a.Quantile()
				if !ok || r.Score <= q {
					if t0 >= 0 {
						o.hits[t0]++
					} else if t0 >= -shiftPost {
						o.before++
					}
				}
				if t0 >= 0 && !ok {
					o.unbounded[t0]++
				}
				if t0 >= 500 && ok {
					o.width += q
					o.finite++
				}
				if err := a.Observe(r); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return all
}

// A shift by three standard deviations, the engine 2.5 × slower at once, after 8000 rows, feedback at once.
func TestShift(t *testing.T) {
	all := shift(t, shiftSize)
	cuts := []int{0, 50, 100, 200, 500, 1000, 2000}
	var table strings.Builder
	fmt.Fprintf(&table, "coverage at α = %v, %d seeds, shift of 3 sd after %d rows; exact quantile after it %.3f\n%-10s %6s", shiftAlpha,
		shiftSeeds, shiftPre, shiftSize+1.2816*shiftSD, "arm", "before")
	for i := range cuts[1:] {
		fmt.Fprintf(&table, " %9s", fmt.Sprintf("%d-%d", cuts[i]+1, cuts[i+1]))
	}
	fmt.Fprintf(&table, " %6s %8s %8s", "back", "no bound", "mean q")
	for _, name := range []string{"static", "rolling", "aci", "dtaci", "dtaci/128", "sfogd", "sfogd/1"} {
		o := all[name]
		fmt.Fprintf(&table, "\n%-10s %6.3f", name, float64(o.before)/(shiftSeeds*shiftPost))
		for i := range cuts[1:] {
			fmt.Fprintf(&table, " %9.3f", o.coverage(cuts[i], cuts[i+1]))
		}
		unbounded := 0
		for _, n := range o.unbounded {
			unbounded += n
		}
		fmt.Fprintf(&table, " %6d %8.3f %8.3f", o.back(), float64(unbounded)/(shiftSeeds*shiftPost), o.width/float64(o.finite))
	}
	t.Log(table.String())

	if c := all["static"].coverage(0, shiftPost); c < 0.03 || c > 0.06 {
		t.Errorf("static coverage after the shift is %.3f, not about 0.04", c)
	}
	tol := 4 * math.Sqrt(shiftAlpha*(1-shiftAlpha)/(1000*shiftSeeds))
	for name, within := range map[string]int{"rolling": 400, "aci": 40, "dtaci": 30, "dtaci/128": 30, "sfogd": 50} {
		o := all[name]
		if got := o.back(); got > within {
			t.Errorf("%s is back at its level after %d rows, not within %d", name, got, within)
		}
		if c := o.coverage(1000, 2000); math.Abs(c-(1-shiftAlpha)) > tol {
			t.Errorf("%s: coverage of rows 1001 to 2000 after the shift is %.4f, not 0.9 ± %.4f", name, c, tol)
		}
	}
	for _, name := range []string{"dtaci", "dtaci/128", "sfogd"} {
		if c, tol := all[name].coverage(100, 200), 4*math.Sqrt(shiftAlpha*(1-shiftAlpha)/(100*shiftSeeds)); c < 1-shiftAlpha-tol {
			t.Errorf("%s: coverage of rows 101 to 200 after the shift is %.3f, below 0.9 − %.3f", name, c, tol)
		}
	}
	if fast, slow := all["sfogd"].back(), all["sfogd/1"].back(); slow < 4*fast {
		t.Errorf("without a discount it is back after %d rows, with one after %d", slow, fast)
	}
}

// The steps of SFOGD in the paper's form fall as 1/√t, discounted ones stay.
func TestUndiscountedStepsDieOut(t *testing.T) {
	// meanStep is the mean size of steps over the 1000 rows before row n.
	meanStep := func(discount float64, n int) float64 {
		c := DefaultSFOGD(shiftAlpha)
		if discount == 1 {
			c.Discount = 1
		}
		a := must(NewSFOGD(shiftAlpha, 0.4, c, 1, nil))
		rng := rand.New(rand.NewPCG(15, 16))
		sum := 0.0
		for i := range n {
			before, _ := a.Quantile()
			if err := a.Observe(Row{Score: shiftSD * rng.NormFloat64()}); err != nil {
				t.Fatal(err)
			}
			if after, _ := a.Quantile(); i >= n-1000 {
				sum += math.Abs(after - before)
			}
		}
		return sum / 1000
	}
	early, late := meanStep(1, 2000), meanStep(1, 200_000)
	t.Logf("mean step of rows 1001–2000 and 199,001–200,000: undiscounted %.5f, %.5f; discounted %.5f, %.5f", early, late,
		meanStep(0, 2000), meanStep(0, 200_000))
	if ratio := late / early; ratio > 0.11 { // √(1500/199,500) = 0.087
		t.Errorf("undiscounted steps fall by %.3f only", ratio)
	}
	if ratio := meanStep(0, 200_000) / meanStep(0, 2000); ratio < 0.8 || ratio > 1.25 {
		t.Errorf("discounted steps change by %.3f", ratio)
	}
}

// With a delay many rows are in flight when the shift comes, all with bounds of before. They must not all push.
func TestShiftWithDelayedFeedback(t *testing.T) {
	const (
		gap   = 20 * time.Millisecond // between arrivals: 50 rows in flight, 100 after the shift
		pred  = 1.0
		pre   = 3000
		post  = 1500
		seeds = 6
	)
	truth := math.Log(2) + 1.2816*shiftSD // the quantile after the shift
	for _, name := range []string{"rolling", "aci", "dtaci", "sfogd"} {
		var issuedLate, all Coverage // rows 201 to 700 and 701 to 1500 after the shift, by order of issue
		peak := 0.0
		unbounded := 0
		for seed := range uint64(seeds) {
			rng := rand.New(rand.NewPCG(seed, 17))
			var a Arm
			for _, c := range arms(shiftAlpha, 256, normalRows(rng, 256, 0, shiftSD), 1.2816*shiftSD) {
				if c.name == name {
					a = c.Arm
				}
			}
			q := NewQueue(Ratio)
			ends := &endings{}
			var buf []Resolution
			handle := func(r Resolution) {
				if err := a.Observe(r.Row); err != nil {
					t.Fatal(err)
				}
				switch i := int(r.Row.ID) - pre; {
				case i >= 700:
					all.Add(r.Verdict)
				case i >= 200:
					issuedLate.Add(r.Verdict)
				}
			}
			drain := func(now time.Duration) {
				for ends.Len() > 0 && (*ends)[0].at <= now {
					e := heap.Pop(ends).(ending)
					buf = q.Advance(buf[:0], e.at)
					for _, r := range buf {
						handle(r)
					}
					handle(must(q.Complete(e.ticket, e.at)))
				}
				buf = q.Advance(buf[:0], now)
				for _, r := range buf {
					handle(r)
				}
			}
			for i := range pre + post {
				now := time.Duration(i) * gap
				drain(now)
				s := shiftSD * rng.NormFloat64()
				if i >= pre {
					s += math.Log(2)
				}
				bound, ok := a.Quantile()
				if !ok {
					bound = 5 // let in all the same: a row without a bound covers whatever comes
					if i >= pre {
						unbounded++
					}
				} else if i >= pre {
					peak = max(peak, bound)
				}
				u := must(Ratio.Bound(pred, 0, bound))
				ticket := must(q.Issue(Issue{ID: uint64(i), Bound: time.Duration(u * 1e9), Pred: pred}, now))
				heap.Push(ends, ending{now + time.Duration(pred*math.Exp(s)*1e9), ticket})
			}
			drain(math.MaxInt64)
			if q.Len() != 0 {
				t.Fatalf("%d rows left", q.Len())
			}
		}
		mid, _ := issuedLate.Range()
		end, _ := all.Range()
		t.Logf("%-8s coverage of rows 201–700 %.3f, 701–1500 %.3f after the shift; highest quantile %.2f (exact %.2f); no bound %.3f",
			name, mid, end, peak, truth, float64(unbounded)/(seeds*post))
		if math.Abs(end-0.9) > 0.02 {
			t.Errorf("%s: coverage of rows 701–1500 after the shift is %.3f", name, end)
		}
		if name == "sfogd" && (mid < 0.88 || peak > truth+2*math.Ln2) {
			t.Errorf("sfogd: coverage of rows 201–700 is %.3f, the quantile rises to %.2f where %.2f is exact", mid, peak, truth)
		}
	}
}

type ending struct {
	at     time.Duration
	ticket Ticket
}

type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}
