package worker

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// busy lets steps of about 10 ms come for so long, each taking what speed says of what was predicted.
func (d *drift) busy(rng *rand.Rand, length time.Duration, speed func() float64) {
	for end := length; end > 0; {
		said := time.Duration(float64(10*time.Millisecond) * (0.5 + rng.Float64()))
		took := time.Duration(float64(said) * speed())
		d.observe(took, said)
		end -= took
	}
}

func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got/want-1) > part {
		t.Errorf("%s: %.3f, want %.3f", what, got, want)
	}
}

func TestDriftFollowsTheSpeed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noisy := func(speed float64) func() float64 {
		return func() float64 { return speed * math.Exp(0.1*rng.NormFloat64()) }
	}
	var d drift
	if d.slow() != 0 {
		t.Error("nothing was seen, and it says something")
	}
	d.busy(rng, time.Second, noisy(1))
	within(t, "as predicted", d.slow(), 1, 0.05)
	d.busy(rng, 2*time.Second, noisy(1.5)) // a time constant
	if got := d.slow(); got < 1.25 || got > 1.45 {
		t.Errorf("after a time constant: %.3f of 1.5", got)
	}
	d.busy(rng, 8*time.Second, noisy(1.5))
	within(t, "half as slow again", d.slow(), 1.5, 0.05)
	d.busy(rng, 20*time.Second, noisy(6)) // beyond what one step is believed
	within(t, "six times as slow", d.slow(), 6, 0.1)
	d.busy(rng, 10*time.Second, noisy(0.5))
	within(t, "twice as fast", d.slow(), 0.5, 0.1)
}

// A step in a hundred that takes a hundred times as long, or next to nothing, moves it by little.
func TestDriftIsRobust(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var d drift
	n := 0
	d.busy(rng, time.Second, func() float64 { return 1 })
	d.busy(rng, 20*time.Second, func() float64 {
		if n++; n%100 == 50 {
			return []float64{100, 0.001}[n/100%2]
		}
		return 1
	})
	within(t, "with outliers", d.slow(), 1, 0.05)
	d.observe(time.Hour, 10*time.Millisecond)
	within(t, "after a machine that slept", d.slow(), 1, 0.06)
}

func TestDriftIgnoresWhatTellsNothing(t *testing.T) {
	var d drift
	for range 100 {
		d.observe(0, time.Second)
		d.observe(time.Second, 0)
		d.observe(-1, -1)
	}
	if d != (drift{}) {
		t.Errorf("%+v", d)
	}
	for range driftSteps - 1 {
		d.observe(time.Second, time.Second)
	}
	if d.slow() != 0 {
		t.Error("it speaks too early")
	}
	if d.observe(time.Second, time.Second); d.slow() != 1 {
		t.Errorf("%v", d.slow())
	}
}

func BenchmarkDrift(b *testing.B) {
	var d drift
	for range 1000 { // a few steps tell nothing yet
		d.observe(11*time.Millisecond, 10*time.Millisecond)
	}
	b.ReportAllocs()
	for b.Loop() {
		d.observe(11*time.Millisecond, 10*time.Millisecond)
	}
	if d.slow() == 0 {
		b.Fatal("nothing")
	}
}
