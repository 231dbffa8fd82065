package control

import (
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
)

const now = time.Minute

func open(t *testing.T) *profile.Profile {
	t.Helper()
	p, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// of returns a control of ingresses that decide on nothing, in a simulation with an objective of 4 s.
func of(o Options) *Control {
	c := newControl(&sim.Config{SLOs: map[string]record.SLO{"": {E2E: 4 * time.Second}}}, &o)
	for range o.ingresses() {
		c.newDesk()
	}
	return c
}

// pool has requests 0 and 2 in the queue, 1 and 3 running, 10 to 40 ms old.
func pool() *sim.Arrival {
	waiting := func(index int) sim.Waiting {
		return sim.Waiting{Index: index, PromptTokens: 100, CapTokens: 50, Arrived: now - time.Duration(10*(index+1))*time.Millisecond}
	}
	running := func(index, left, output int) sim.Running {
		return sim.Running{Index: index, PromptTokens: 100, CapTokens: 50, PrefillTokens: left, OutputTokens: output, Arrived: now - time.Duration(10*(index+1))*time.Millisecond}
	}
	return &sim.Arrival{Now: now, Pool: sim.View{Waiting: 2, WaitingPromptTokens: 200, WaitingCapTokens: 100, Queue: []sim.Waiting{waiting(0), waiting(2)},
		Workers: []sim.WorkerView{{Requests: []sim.Running{running(1, 100, 0), running(3, 0, 7)}, StepLeft: 9, Slow: 2}}}}
}

// An ingress sees its own requests at once, others' when they are as old as what tells of them.
func TestOthersRequestsAreSeenLate(t *testing.T) {
	for _, x := range []struct {
		pool, engine     time.Duration
		waiting, running []int
	}{
		{0, 0, []int{0, 2}, []int{1, 3}},
		{30 * time.Millisecond, 0, []int{0, 2}, []int{1, 3}},                  // 2 is just old enough
		{31 * time.Millisecond, 20 * time.Millisecond, []int{0}, []int{1, 3}}, // as is 1
		{time.Second, 21 * time.Millisecond, []int{0}, []int{3}},              // and now is not
		{time.Second, time.Second, []int{0}, []int{3}},                        // its own
	} {
		c := of(Options{Ingresses: 2, PoolAge: x.pool, EngineAge: x.engine})
		for index, ingress := range []int{0, 1, 1, 0} {
			c.held[index] = held{ingress: ingress}
		}
		a := pool()
		c.look(a, 0)
		var waiting, running []int
		for _, q := range a.Pool.Queue {
			waiting = append(waiting, q.Index)
		}
		for _, r := range a.Pool.Workers[0].Requests {
			running = append(running, r.Index)
		}
		v := &a.Pool
		if !slices.Equal(waiting, x.waiting) || !slices.Equal(running, x.running) || v.Waiting != len(waiting) || v.WaitingPromptTokens != 100*len(waiting) ||
			v.WaitingCapTokens != 50*len(waiting) {
			t.Errorf("%v, %v: %v wait (%d, %d, %d tokens) and %v run, want %v and %v", x.pool, x.engine, waiting, v.Waiting, v.WaitingPromptTokens,
				v.WaitingCapTokens, running, x.waiting, x.running)
		}
	}
}

// What is expected in the cache is not computed, of requests that wait and of those that have not begun; others' are taken to find
// nothing.
func TestCachedTokensAreNotComputed(t *testing.T) {
	c := of(Options{Ingresses: 2})
	for index, ingress := range []int{0, 0, 1, 0} {
		c.held[index] = held{ingress: ingress, cached: 60, promised: index == 0}
	}
	c.see(pool(), c.desks[0], 0)
	var left []int32
	for _, s := range append(slices.Clone(c.engine.Running), c.engine.Waiting...) {
		left = append(left, s.PrefillTokens)
		if s.E2E != 4*time.Second || s.PromptTokens != 100 {
			t.Errorf("%+v", s)
		}
	}
	if want := []int32{40, 0, 40, 100}; !slices.Equal(left, want) {
		t.Errorf("%v tokens to compute, want %v", left, want)
	}
	if e := &c.engine; e.StepLeft != 9 || e.Slow != 2 || e.Running[1].OutputTokens != 7 || !e.Waiting[0].Guaranteed || e.Waiting[1].Guaranteed || e.Running[0].Guaranteed {
		t.Errorf("%+v", c.engine)
	}
}

// The expected wait goes by the rate of answers since the run began, or in the last ten seconds of it.
func TestWaitGoesByTheLatestRate(t *testing.T) {
	for _, x := range []struct {
		now   time.Duration
		ended []time.Duration
		want  time.Duration
	}{
		{2 * time.Second, nil, 0},
		{2 * time.Second, []time.Duration{time.Second, 2 * time.Second}, 2 * time.Second},
		{time.Minute, []time.Duration{time.Second, 51 * time.Second, 52 * time.Second, 53 * time.Second, 60 * time.Second}, 5 * time.Second},
	} {
		c := of(Options{})
		c.ended = x.ended
		a := pool()
		a.Now = x.now
		if l := c.load(a); l.Wait != x.want || l.Waiting != 2 || l.Workers != 1 || l.Ingresses != 1 || l.Tokens != 300+150+43 {
			t.Errorf("at %v: %+v, want a wait of %v", x.now, l, x.want)
		}
	}
}

// What is refused has the reason's own word, and nothing is labelled guaranteed that was not promised.
func TestSayingWhatWasDecided(t *testing.T) {
	c := of(Options{})
	asks := &admission.Request{Class: schema.Guaranteed, E2E: time.Second}
	for i, x := range []struct {
		d      admission.Decision
		reason schema.RefusalReason
		class  schema.Class
	}{
		{admission.Decision{Reason: admission.ByDepth, Class: schema.BestEffort}, schema.RefusedCapacity, schema.BestEffort},
		{admission.Decision{Reason: admission.Infeasible, Class: schema.BestEffort}, schema.RefusedInfeasible, schema.BestEffort},
		{admission.Decision{Reason: admission.ByPrice, Class: schema.BestEffort}, schema.RefusedSLO, schema.BestEffort},
		{admission.Decision{Admit: true, Reason: admission.Idle, Class: schema.BestEffort}, "", schema.BestEffort},
		{admission.Decision{Admit: true, Reason: admission.ByBound, Class: schema.Guaranteed}, "", schema.Guaranteed},
	} {
		got := c.say(&sim.Arrival{Index: i}, asks, &x.d, &predictor.Outlook{}, held{})
		h, ok := c.held[i]
		if got.Refuse == x.d.Admit || got.Reason != x.reason || got.Class != x.class || ok != x.d.Admit || h.promised != (x.class == schema.Guaranteed) {
			t.Errorf("of %+v it says %+v, and holds %+v, %v", x.d, got, h, ok)
		}
	}
	if want := (Promises{Asked: 5, Given: 1, Refused: 3}); c.promises != want {
		t.Errorf("%+v, want %+v", c.promises, want)
	}
}

func TestPromisesAreKeptBrokenOrLeft(t *testing.T) {
	slo := record.SLO{E2E: 4 * time.Second, TTFT: time.Second}
	p := Promises{}
	for _, r := range []record.Request{
		{Outcome: record.OK, E2E: 4 * time.Second, TTFT: time.Second},
		{Outcome: record.OK, E2E: 4*time.Second + 1, TTFT: time.Second},
		{Outcome: record.OK, E2E: 3 * time.Second, TTFT: 2 * time.Second},
		{Outcome: record.Error, E2E: time.Second},
		{Outcome: record.Shed, E2E: time.Second},
		{Outcome: record.Timeout, E2E: 4 * time.Second},
		{Outcome: record.Timeout, E2E: 5 * time.Second},
		{Outcome: record.Censored, E2E: time.Second},
	} {
		p.end(&r, slo)
	}
	if want := (Promises{Kept: 1, Broken: 5, Left: 2}); p != want || p.Attainment() != 1.0/6 {
		t.Errorf("%+v, want %+v; attainment is %v", p, want, p.Attainment())
	}
	if none := (&Promises{}); none.Attainment() != 1 {
		t.Errorf("without promises attainment is %v", none.Attainment())
	}
}

// A controller that believes in an engine half as fast believes in every part of a step twice as long, and nobody else does.
func TestBeliefIsOfEveryPartOfAStep(t *testing.T) {
	p := open(t)
	before := p.Step(100, 3, 1000)
	o := Options{Profile: p, Belief: 0.5}
	for _, x := range [][3]int{{0, 1, 100}, {256, 0, 256}, {100, 3, 1000}, {0, 24, 9000}} {
		truth, believed := p.Step(x[0], x[1], x[2]), o.believed().Step(x[0], x[1], x[2])
		if diff := believed - 2*truth; diff < -2 || diff > 2 {
			t.Errorf("a step of %v is believed to take %v, truly %v", x, believed, truth)
		}
	}
	if p.Step(100, 3, 1000) != before {
		t.Error("the profile has changed")
	}
	cfg := &sim.Config{}
	if c := newControl(cfg, &o); cfg.Believed != c.profile || c.profile == p {
		t.Error("workers do not believe what the controller does")
	}
	if plain := (&Options{Profile: p, Belief: 1}); plain.believed() != p {
		t.Error("a profile that is right is copied")
	}
}

// Where the speed is told from elsewhere workers are not heard.
func TestSlownessMayBeToldFromElsewhere(t *testing.T) {
	c := of(Options{Slow: func(at time.Duration) float64 { return at.Minutes() / 4 }})
	c.see(pool(), c.desks[0], 0)
	if c.engine.Slow != 0.25 {
		t.Errorf("an engine is %v times as slow as believed", c.engine.Slow)
	}
}
