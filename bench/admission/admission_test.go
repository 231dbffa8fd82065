package admission_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/bench/admission"
	"github.com/cadence-slo/cadence/predictor/profile"
)

func options(t *testing.T) admission.Options {
	t.Helper()
	p, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	o := admission.DefaultOptions()
	o.Profile, o.Quick = p, true
	return o
}

func compare(t *testing.T, o admission.Options) *admission.Report {
	t.Helper()
	r, err := admission.Compare(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What holds of any comparison: all that is offered is counted once, to every arm the same; no admission refuses nothing; means lie
// within their intervals.
func TestComparison(t *testing.T) {
	r := compare(t, options(t))
	if len(r.Arms) < 11 || len(r.Choices) != len(r.Arms) || len(r.Cells) != 3*len(r.Arms) || len(r.Runs) != 2*len(r.Cells) {
		t.Fatalf("%d arms, %d choices, %d cells, %d runs", len(r.Arms), len(r.Choices), len(r.Cells), len(r.Runs))
	}
	type on struct {
		rate float64
		seed uint64
	}
	offered := map[on]int{}
	for _, x := range r.Runs {
		if x.Good+x.Late+x.Refused+x.Open+x.Failed != x.Offered || x.Offered == 0 || x.Failed > 0 {
			t.Errorf("%+v", x)
		}
		if x.Arm == "none" {
			offered[on{x.Rate, x.Seed}] = x.Offered
			if x.Refused != 0 || x.Coverage.Rows() != 0 {
				t.Errorf("no admission: %+v", x)
			}
		}
		if x.Offered != offered[on{x.Rate, x.Seed}] {
			t.Errorf("%s was offered %d requests, none %d", x.Arm, x.Offered, offered[on{x.Rate, x.Seed}])
		}
		if seconds := (r.Length - r.Warmup).Seconds(); x.Goodput != float64(x.Good)/seconds {
			t.Errorf("%s: %d good in %v s are not %v a second", x.Arm, x.Good, seconds, x.Goodput)
		}
		if judged := x.Coverage.Rows(); judged > x.Offered-x.Refused {
			t.Errorf("%s: %d bounds judged of %d admitted", x.Arm, judged, x.Offered-x.Refused)
		}
	}
	for _, c := range r.Cells {
		g := c.Goodput
		if !(c.Least <= g.Low && g.Low <= g.Value && g.Value <= g.High && g.High <= c.Most) || c.Refused < 0 || c.Refused > 1 {
			t.Errorf("%+v", c)
		}
		if c.Best == nil || c.Best.Arm == c.Arm || (c.None == nil) != (c.Arm == "none") {
			t.Errorf("%s is compared with %+v and %+v", c.Arm, c.None, c.Best)
		}
		if strings.Contains(c.Arm, "-u") != (c.Coverage != nil) && c.Arm != "marginal" {
			t.Errorf("%s has coverage %+v", c.Arm, c.Coverage)
		}
		if k := c.Coverage; k != nil && k.Rows() > 0 && (k.Low > k.High || k.Low < 0 || k.High > 1) {
			t.Errorf("%s: %+v", c.Arm, k)
		}
	}
	for i, c := range r.Choices {
		for k, score := range c.Scores {
			if score < 0 || score > 1+1e-9 || c.Grid[k] == c.Constant && score < max(c.Scores[0], c.Scores[len(c.Scores)-1]) {
				t.Errorf("%+v", c)
			}
		}
		if len(c.Grid) != 2 && c.Arm != "none" || r.Arms[i].Arm != c.Arm {
			t.Errorf("%+v of %+v", c, r.Arms[i])
		}
	}
	// At three times what can be done in time, rules that look ahead keep most of it, and no admission next to nothing.
	last := map[string]float64{}
	for _, c := range r.Cells {
		last[c.Arm] = c.Goodput.Value
	}
	if last["none"] > 0.1*r.Peak.Goodput || last["marginal"] < r.Peak.Goodput || last["online-u80"] < r.Peak.Goodput {
		t.Errorf("peak %+v, at the last load %v", r.Peak, last)
	}
	var out bytes.Buffer
	if err := r.Write(&out); err != nil || strings.Count(out.String(), " frozen-u95 ") < 4 {
		t.Errorf("%v: %s", err, out.String())
	}
}

// The same options give the same report.
func TestComparisonRepeats(t *testing.T) {
	o := options(t)
	o.Arms = []string{"throughput", "frozen-u80", "shed", "marginal"}
	if a, b := compare(t, o), compare(t, o); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v, then %+v", a.Cells, b.Cells)
	}
}

func TestOptionsNameTheKey(t *testing.T) {
	for key, edit := range map[string]func(*admission.Options){
		"profile":    func(o *admission.Options) { o.Profile = nil },
		"workload":   func(o *admission.Options) { o.Workload = "" },
		"slo-e2e":    func(o *admission.Options) { o.SLO = 0 },
		"arms":       func(o *admission.Options) { o.Arms = []string{"all"} },
		"loads":      func(o *admission.Options) { o.Loads = []float64{0} },
		"rates":      func(o *admission.Options) { o.Rates = []float64{-1} },
		"seeds":      func(o *admission.Options) { o.Seeds = 1001 },
		"tune-seeds": func(o *admission.Options) { o.TuneSeeds = 0 },
		"warmup":     func(o *admission.Options) { o.Length, o.Warmup = o.TuneLength, o.TuneLength },
		"timeout":    func(o *admission.Options) { o.Timeout = 0 },
	} {
		o := options(t)
		o.Quick = false
		edit(&o)
		if _, err := admission.Compare(context.Background(), o); !errors.Is(err, admission.ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
