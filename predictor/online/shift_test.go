package online_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/online"
)

// shift is 2,000 requests of an engine and 200 more after its speed has changed by a factor, eight at a time: what becomes of a bound
// is known when others were admitted on. It returns what became of those of the last 100, and how many rows after the change an alarm
// came; -1: none.
func shift(t *testing.T, p *online.Predictor, e *predictor.Engine, rng *rand.Rand, factor float64) (last conformal.Coverage, alarm int) {
	type open struct {
		id       uint64
		at, took time.Duration
		n        int32
	}
	var flight [8]open
	var f online.Foresight
	s := predictor.Sequence{PromptTokens: 64, PrefillTokens: 64, CapTokens: 64}
	prefill, step := float64(e.Profile.Step(64, 0, 64)), float64(e.Profile.Step(0, 1, 80))
	now := time.Duration(0)
	alarm = -1
	for i := range 2200 {
		slot := &flight[0]
		for k := range flight {
			if flight[k].at+flight[k].took < slot.at+slot.took {
				slot = &flight[k]
			}
		}
		if slot.id > 0 {
			now = slot.at + slot.took
			p.End(slot.id, online.Ending{E2E: slot.took, Tokens: slot.n}, now)
		}
		speed := 1.0
		if i >= 2000 {
			speed = factor
		}
		if i%4 == 0 || i >= 1900 { // all are alike
			if err := p.Foresee(e, &s, &f); err != nil {
				t.Fatal(err)
			}
		}
		n := int32(1 + rng.IntN(40))
		took := time.Duration(speed * (prefill + float64(n-1)*step) * math.Exp(0.2*rng.NormFloat64()))
		*slot = open{id: uint64(i + 1), at: now, took: took, n: n}
		p.Admit(slot.id, &f, 1, now)
		if i >= 2100 {
			v := conformal.Miss
			if took <= f.Bound {
				v = conformal.Hit
			}
			last.Add(v)
		}
		if since, kind := p.Alarm(); i >= 2000 && alarm < 0 && kind == online.TooLow && since > 0 {
			alarm = i - 2000
		}
	}
	return last, alarm
}

// After an engine has become half as fast, bounds are back at their level within a hundred requests, pooled over 200 changes, and an alarm
// tells of it.
func TestBoundsAfterAShift(t *testing.T) {
	const changes = 200
	runs := make([]conformal.Coverage, changes)
	alarms, rows := 0, 0
	for i := range runs {
		_, e := open(t)
		p := newPredictor(t, online.DefaultConfig(0.9))
		var at int
		if runs[i], at = shift(t, p, e, rand.New(rand.NewPCG(uint64(i), 21)), 2); at >= 0 {
			alarms++
			rows += at
		}
	}
	low, high, err := conformal.Clustered(runs, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	all := conformal.Total(runs)
	t.Logf("requests 101 to 200 after: coverage %.4f in [%.4f, %.4f]; %d alarms, after %.1f requests on average", float64(all.Hits)/float64(all.Rows()), low,
		high, alarms, float64(rows)/float64(max(1, alarms)))
	if low > 0.9 || high < 0.9 {
		t.Errorf("coverage is in [%.4f, %.4f], want 0.9 in it", low, high)
	}
	if alarms < changes*9/10 {
		t.Errorf("%d alarms of %d changes", alarms, changes)
	}
}

// Nothing changes and nothing is alarmed, mostly; the alarm of a change ends when bounds hold again.
func TestAlarmIsOfAChange(t *testing.T) {
	w := newWorld(t, 22)
	p := newPredictor(t, online.DefaultConfig(0.9))
	for range 3000 {
		w.next(p, 1)
		if since, kind := p.Alarm(); kind != online.Calm || since != 0 {
			t.Fatalf("%v since %v", kind, since)
		}
	}
	w.factor = func(*world) float64 { return 2 }
	raised := -1
	for i := range 600 {
		w.next(p, 1)
		if since, kind := p.Alarm(); kind == online.TooLow && since > 0 && raised < 0 {
			raised = i
		}
	}
	if raised < 0 || raised > 60 {
		t.Errorf("half as fast: an alarm after %d requests", raised)
	}
	if since, kind := p.Alarm(); kind != online.Calm || since != 0 {
		t.Errorf("when bounds hold again: %v since %v", kind, since)
	}
	w.factor = func(*world) float64 { return 0.5 }
	raised = -1
	for i := range 600 {
		w.next(p, 1)
		if _, kind := p.Alarm(); kind == online.TooHigh && raised < 0 {
			raised = i
		}
	}
	if raised < 0 || raised > 150 {
		t.Errorf("four times as fast: an alarm after %d requests", raised)
	}
	if got, _ := covered(w.serveAll(p, 1000), nil); math.Abs(got-0.9) > 0.03 {
		t.Errorf("bounds hold in %.3f", got)
	}
	if online.TooHigh.String() != "bounds_too_high" || online.Kind(9).String() != "unknown" {
		t.Error("names of alarms")
	}
}
