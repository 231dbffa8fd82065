package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cadence-slo/cadence/bench/arrival"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The processes pass, and the check sees what is wrong: a process that is said to be Poisson and is not, or said not to be and
// is.
func TestArrivals(t *testing.T) {
	const n, rate, length = 200, 1.4, 3 * time.Minute
	for _, c := range []struct {
		p             arrival.Process
		poisson, want bool
	}{
		{arrival.Poisson{}, true, true}, {arrival.Gamma{CV: 1}, true, true}, {arrival.Gamma{CV: 2}, false, true}, {arrival.Constant{}, false, true},
		{arrival.Ramp{To: 1}, false, true}, {arrival.OnOff{On: 9 * time.Second, Off: 18 * time.Second, Low: 0.1}, false, true},
		{arrival.Gamma{CV: 1.3}, true, false}, {arrival.Gamma{CV: 0.7}, true, false}, {arrival.Poisson{}, false, false},
	} {
		got := Arrivals(c.p, c.poisson, n, rate, length)
		if got.Passed != c.want || len(got.PValues) != n || got.Gaps != 252 {
			t.Errorf("%s, %v: passed %v: rejected %.3f, median p %.3f, uniform %.2g, mean %.1f, index %.2f", c.p, c.poisson, got.Passed, got.Rejected, got.MedianP,
				got.UniformP, got.Mean, got.Index)
		}
	}
}

// At twice the capacity the last quarter waits at least as long as what came before it takes to be served, however slow the
// machine is. What the quarters must look like is checked by hand.
func TestQueue(t *testing.T) {
	over, err := Queue(t.Context(), 200, 10*time.Millisecond, 1200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if over.Answered != over.Requests || over.Requests < 150 || over.Medians[3] < over.Expected[3]*8/10 || over.Load != 2 || over.Passed != over.passed() {
		t.Errorf("%+v", over)
	}
	under, err := Queue(t.Context(), 20, 25*time.Millisecond, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if under.Answered != under.Requests || under.Requests == 0 || under.Load != 0.5 || under.Expected[3] != 37500*time.Microsecond || under.Passed != under.passed() {
		t.Errorf("%+v", under)
	}
	grows := *over
	grows.Medians = []time.Duration{2e8, 5e8, 7e8, 11e8}
	if !grows.shape() {
		t.Error("growth does not pass")
	}
	// What a closed loop would show.
	flat := *over
	flat.Medians = []time.Duration{3e8, 4e8, 4e8, 4e8}
	if flat.shape() {
		t.Error("a plateau passes")
	}
	idle := *under
	if idle.Medians = []time.Duration{5e7, 6e7, 5e7, 7e7}; !idle.shape() {
		t.Error("short waits below capacity do not pass")
	}
	if idle.Medians = grows.Medians; idle.shape() {
		t.Error("a queue below capacity passes")
	}
	if idle.Medians = []time.Duration{5e7, 6e7, 12e7, 5e7}; idle.shape() {
		t.Error("waits of more than three times what is due pass below capacity")
	}
	for name, change := range map[string]func(*Overload){
		"a late generator":     func(o *Overload) { o.Invalid = []string{"late"} },
		"a request unanswered": func(o *Overload) { o.Answered-- },
	} {
		o := grows
		if o.Invalid = nil; !o.passed() {
			t.Error("growth on time does not pass")
		}
		if change(&o); o.passed() {
			t.Errorf("%s passes", name)
		}
	}
}

// What is committed says of itself what the checks say of it.
func TestCommittedReport(t *testing.T) {
	b, err := os.ReadFile("../../docs/experiments/results/load-generator.json")
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil || r.Over == nil || r.Under == nil || len(r.Arrivals) == 0 || len(r.Lag) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	all := true
	for _, q := range []*Overload{r.Over, r.Under} {
		all = all && q.Passed
		if q.Passed != q.passed() {
			t.Errorf("at a load of %v passed is %v, with %v", q.Load, q.Passed, q.Invalid)
		}
		for i, e := range q.Expected {
			if e != q.expect(i) {
				t.Errorf("at a load of %v %v is expected of quarter %d, the file says %v", q.Load, q.expect(i), i+1, e)
			}
		}
	}
	for i := range r.Arrivals {
		all = all && r.Arrivals[i].Passed
	}
	for _, l := range r.Lag {
		all = all && l.Passed
		if l.Passed != (len(l.Invalid) == 0) {
			t.Errorf("at %v requests/s passed is %v, with %v", l.Rate, l.Passed, l.Invalid)
		}
	}
	if r.Passed != all {
		t.Errorf("passed is %v, its parts say %v", r.Passed, all)
	}
}

func TestLag(t *testing.T) {
	l, err := Lag(t.Context(), 500, 400*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if l.Requests < 100 || l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.Max || l.Seen.P50 > l.Seen.P99 || l.Seen.P99 > l.Seen.Max || l.Passed != (len(l.Invalid) == 0) {
		t.Errorf("%+v", l)
	}
	if _, err := Lag(t.Context(), 1e-9, time.Second); err == nil {
		t.Error("nothing was measured")
	}
}

func TestRun(t *testing.T) {
	o := Options{Seeds: 40, Rate: 2, Length: 30 * time.Second, Service: 5 * time.Millisecond, QueueLength: 400 * time.Millisecond, LagRates: []float64{100}, LagLength: 200 * time.Millisecond, Version: "v0"}
	var notes []string
	o.Note = func(s string) { notes = append(notes, s) }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil || len(notes) != 4 || len(r.Arrivals) != 6 || r.Over == nil || r.Under == nil || len(r.Lag) != 1 {
		t.Errorf("%v, %v, %+v", err, notes, r)
	}
	for _, want := range []string{"poisson", "gamma:cv=2", "constant", "expected", "lag p50"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"seeds":        func(o *Options) { o.Seeds = 1 },
		"rate":         func(o *Options) { o.Rate = 0 },
		"queue-length": func(o *Options) { o.QueueLength = o.Service },
		"lag-rates":    func(o *Options) { o.LagRates = []float64{0} },
	} {
		bad := o
		change(&bad)
		if _, err := Run(t.Context(), bad); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
