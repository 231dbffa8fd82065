package validate

import (
	"bytes"
	"encoding/json"
	"errors"
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

// Latencies grow at twice the capacity, from quarter to quarter, and not at half of it.
func TestQueue(t *testing.T) {
	over, err := Queue(t.Context(), 200, 10*time.Millisecond, 1200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if !over.Passed || over.Requests < 150 || over.Medians[3] < 3*over.Medians[0] || over.Load != 2 {
		t.Errorf("%+v", over)
	}
	under, err := Queue(t.Context(), 20, 25*time.Millisecond, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if under.Answered != under.Requests || under.Requests == 0 || under.Medians[3] >= over.Medians[3] {
		t.Errorf("%+v", under)
	}
	// What a closed loop would show.
	flat := *over
	flat.Medians = []time.Duration{3e8, 4e8, 4e8, 4e8}
	if flat.shape() {
		t.Error("a plateau passes")
	}
	grows := *under
	grows.Medians = over.Medians
	if grows.Length = time.Second; grows.shape() {
		t.Error("a queue below capacity passes")
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
