package ingress

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/schema"
)

// born is when the desks of the tests were made: their time is an argument.
var born = time.Unix(1_700_000_000, 0)

func deskOf(t testing.TB, change func(*Config)) *desk {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	d, err := newDesk(&cfg, born, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func testDesk(t testing.TB) *desk { return deskOf(t, nil) }

// engine gives a desk one worker that holds so many, with so many waiting before it.
func (d *desk) engine(t testing.TB, now time.Duration, running, waiting int) {
	t.Helper()
	hold := func(from, n int) (list []schema.SequenceState) {
		for i := range n {
			s := stateOf(1_000_000+from+i, 256, 0, 5, 128)
			s.Budget = time.Minute
			list = append(list, s)
		}
		return list
	}
	e := &schema.EngineState{Worker: "w", Pool: "p", Model: "m", FreePages: 1 << 20, Running: hold(0, running), Settings: settingsOf(t, "seed-laptop")}
	if running > 0 {
		e.StepLeft = 20 * ms
	}
	if err := d.running(e, now); err != nil {
		t.Fatal(err)
	}
	d.waiting(&schema.PoolState{Pool: "p", Interval: time.Hour, RequestSeq: 1 << 40, Waiting: hold(running, waiting), WaitingRequests: int32(waiting)}, now)
	d.beat(&schema.WorkerState{Worker: "w", Interval: time.Hour}, now)
}

// comes decides on the n-th request.
func (d *desk) comes(n int, now time.Duration, change func(*call)) verdict {
	r := arrival(n)
	r.arrived, r.prompt = born.Add(now), 100
	if change != nil {
		change(r)
	}
	return d.decide(r, make([]int32, 100), now)
}

func withE2E(objective time.Duration) func(*call) {
	return func(r *call) { r.deadline = objective }
}

// learn lets so many requests come to an idle engine and be answered as it would.
func (d *desk) learn(t testing.TB, n int, now time.Duration) time.Duration {
	for i := range n {
		d.engine(t, now, 0, 0)
		id := 500_000 + i
		v := d.comes(id, now, withE2E(time.Minute))
		if !v.Admit {
			t.Fatalf("%d of them: %+v", i, v)
		}
		now += v.physics
		d.end(requestID(id), online.Ending{How: online.Completed, Tokens: 24}, now)
	}
	return now
}

func TestDeskRefusesWhatCannotBeInTime(t *testing.T) {
	d := testDesk(t)
	d.engine(t, 0, 24, 40)
	v := d.comes(1, 0, withE2E(200*ms))
	if v.Admit || v.by != "cold_start" || v.RetryAfter < time.Second || v.Note != admission.NoteCold {
		t.Errorf("cold: %+v", v)
	}
	now := d.learn(t, 40, time.Second)
	if d.courts["p"].predictor.Cold() {
		t.Fatal("it has learned nothing")
	}
	d.engine(t, now, 24, 40)
	v = d.comes(2, now, withE2E(200*ms))
	if v.Admit || v.by != "infeasible" && v.by != "best_effort_price" || v.RetryAfter < time.Second || v.outlook.Predicted < time.Second {
		t.Errorf("warm: %+v", v)
	}
	if len(v.features) != feature.Count || v.physics <= 0 || v.queue < time.Second {
		t.Errorf("physics %v, queue %v, %d features", v.physics, v.queue, len(v.features))
	}
	var e schema.Event
	v.tell(&e)
	if e.Decision != v.by || e.Predicted != v.outlook.Predicted || e.PredictedTTFT != v.outlook.First || e.Bound <= 0 || e.BoundLevel != 0.95 ||
		e.Cost <= 0 || e.Physics != v.physics || len(e.Features) != feature.Count || e.Meet > 0.01 {
		t.Errorf("%+v", e)
	}
	d.engine(t, now, 0, 0)
	if v := d.comes(3, now, withE2E(time.Minute)); !v.Admit {
		t.Errorf("an idle engine refuses: %+v", v)
	}
}

func TestOnlyWhatIsPromisedIsGuaranteed(t *testing.T) {
	d := testDesk(t)
	ask := func(objective time.Duration) func(*call) {
		return func(r *call) { r.deadline, r.asked = objective, schema.Guaranteed }
	}
	d.engine(t, 0, 0, 0)
	if v := d.comes(1, 0, ask(time.Minute)); !v.Admit || v.Class == schema.Guaranteed {
		t.Errorf("cold: %+v", v)
	}
	now := d.learn(t, 40, time.Second)
	d.engine(t, now, 0, 0)
	if v := d.comes(2, now, ask(time.Minute)); !v.Admit || v.Class != schema.Guaranteed || v.by != "bound" || v.outlook.Bound > time.Minute {
		t.Errorf("warm: %+v", v)
	}
	if !d.engines.mine[requestID(2)].s.Guaranteed {
		t.Error("the promise is not remembered")
	}
	d.engine(t, now, 24, 40)
	if v := d.comes(3, now, ask(2*time.Second)); v.Admit {
		t.Errorf("promised under load: %+v", v)
	}
}

// A request without an objective is let in wherever there is room, and everywhere as long as nobody has an objective.
func TestWithoutObjectives(t *testing.T) {
	d := testDesk(t)
	d.engine(t, 0, 24, 400)
	for i := range 300 {
		if v := d.comes(i, 0, nil); !v.Admit || v.by != "open" {
			t.Fatalf("the %d-th: %+v", i, v)
		}
		d.end(requestID(i), online.Ending{How: online.Left}, ms)
	}
	now := d.learn(t, 40, time.Second)
	d.engine(t, now, 24, 40)
	refused := 0
	for i := range 2000 { // far more than there is time for
		now += 5 * ms
		if v := d.comes(1000+i, now, withE2E(1500*ms)); !v.Admit {
			refused++
		}
		d.end(requestID(1000+i), online.Ending{How: online.Left}, now)
	}
	price := d.courts["p"].arm.(*admission.Marginal).Lambda(now, 1)
	if refused < 1000 || price <= 0 {
		t.Fatalf("%d are refused at a price of %v", refused, price)
	}
	d.engine(t, now, 12, 0)
	for i := range 10 {
		if v := d.comes(5000+i, now, nil); !v.Admit {
			t.Fatalf("there is room: %+v", v)
		}
		d.end(requestID(5000+i), online.Ending{How: online.Left}, now)
	}
}

// The server outlives a handler that panics. So does the desk.
func TestDeskOutlivesAPanic(t *testing.T) {
	d := testDesk(t)
	d.engine(t, 0, 0, 0)
	d.engines.digest = func(*schema.PrefixDigest, string, []int32) int { panic("here") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		d.comes(1, 0, nil)
	}()
	if !d.mu.TryLock() {
		t.Fatal("it is locked for good")
	}
	d.mu.Unlock()
	d.engines.digest = nil
	if v := d.comes(2, 0, nil); !v.Admit {
		t.Errorf("%+v", v)
	}
}

// Without a state nothing is predicted, and nothing fails.
func TestBlindDesk(t *testing.T) {
	for _, rule := range []string{ruleMarginal, ruleOnline, ruleQueueDepth, ruleInFlight, ruleNone} {
		d := deskOf(t, func(c *Config) { c.Admission = rule })
		v := d.comes(1, 0, func(r *call) { r.deadline, r.asked = ms, schema.Guaranteed })
		if !v.Admit || v.by == "" || v.Class != schema.BestEffort || v.Note != noteNoEngine || v.outlook.Predicted != 0 {
			t.Errorf("%s: %+v", rule, v)
		}
		for i := 2; i < 40; i++ { // no worker tells how much room it has
			if v := d.comes(i, 0, nil); !v.Admit {
				t.Errorf("%s refuses number %d, of which nothing is known: %+v", rule, i, v)
			}
		}
		for i := 2; i < 40; i++ {
			d.end(requestID(i), online.Ending{How: online.Left}, ms)
		}
		d.end(requestID(1), online.Ending{How: online.Completed, Tokens: 3}, ms)
		if d.engines.open != 0 {
			t.Errorf("%s: %d open", rule, d.engines.open)
		}
	}
}

func TestBaselines(t *testing.T) {
	for rule, c := range map[string]struct {
		running, waiting int
		by               string
	}{
		ruleQueueDepth: {24, 9, "queue_depth"},
		ruleInFlight:   {16, 0, "queue_depth"},
		ruleNone:       {24, 400, ""},
	} {
		d := deskOf(t, func(c *Config) { c.Admission = rule })
		d.engine(t, 0, c.running, c.waiting)
		v := d.comes(1, 0, nil)
		if v.Admit != (c.by == "") || c.by != "" && (v.by != c.by || v.RetryAfter < time.Second || v.Reason.Refusal() != schema.RefusedCapacity) {
			t.Errorf("%s: %+v", rule, v)
		}
		d.engine(t, ms, 2, 0)
		if v := d.comes(2, ms, nil); !v.Admit || v.outlook.Predicted <= 0 {
			t.Errorf("%s with room: %+v", rule, v)
		}
	}
	d := deskOf(t, func(c *Config) { c.Admission, c.AdmissionLimit = ruleInFlight, 3 })
	d.engine(t, 0, 0, 0)
	n := 0
	for i := range 10 {
		if d.comes(i, 0, nil).Admit {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d in flight", n)
	}
}

func TestProbe(t *testing.T) {
	d := deskOf(t, func(c *Config) { c.ProbeToken = "s3cret" })
	if !d.isProbe("s3cret") || d.isProbe("s3cre") || d.isProbe("") || testDesk(t).isProbe("") {
		t.Error("tokens are not told apart")
	}
	d.engine(t, 0, 24, 40)
	if v := d.comes(1, 0, func(r *call) { r.deadline, r.canary = ms, true }); !v.Admit || v.by != byProbe || v.RetryAfter != 0 {
		t.Errorf("%+v", v)
	}
}

func TestConfiguredRules(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"admission is":     func(c *Config) { c.Admission = "luck" },
		"admission-level":  func(c *Config) { c.AdmissionLevel = 1 },
		"admission-limit":  func(c *Config) { c.AdmissionLimit = -1 },
		"explore.rate":     func(c *Config) { c.ExploreRate = 2 },
		"slo-e2e":          func(c *Config) { c.SLOE2E = -1 },
		"slo-ttft":         func(c *Config) { c.SLOTTFT = -1 },
		"max-open-tokens":  func(c *Config) { c.MaxOpenTokens = -1 },
		"max-tenant-open ": func(c *Config) { c.MaxTenantOpen = -1 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestDemandIsOfOneRequest(t *testing.T) {
	a, b := &call{tenant: "t", clientID: "x"}, &call{tenant: "u", clientID: "x"}
	one, two := []int32{1, 2, 3}, []int32{1, 2, 4}
	if first := a.demand(one); first != a.demand([]int32{1, 2, 3}) || first == 0 {
		t.Error("a retry is another demand")
	}
	if a.demand(one) == b.demand(one) || a.demand(one) == a.demand(two) || (&call{}).demand(one) != 0 {
		t.Error("different requests are one demand")
	}
}

// BenchmarkDecide is a whole decision with 24 running and 40 waiting, and what of it is putting together what is known:
// go test -run - -bench 'Decide|See' ./ingress
func BenchmarkDecide(b *testing.B) {
	d := testDesk(b)
	now := d.learn(b, 40, time.Second)
	d.engine(b, now, 24, 40)
	prompt := make([]int32, 500)
	r := arrival(1)
	r.arrived, r.deadline, r.clientID = born.Add(now), 8*time.Second, "x"
	timed(b, func() {
		d.decide(r, prompt, now)
		d.end(r.id, online.Ending{How: online.Left}, now)
		delete(d.engines.mine, r.id)
	})
}

func BenchmarkSee(b *testing.B) {
	d := testDesk(b)
	d.engine(b, 0, 24, 40)
	for i := range 40 { // of this ingress, and nowhere yet
		d.comes(i, 0, nil)
		if i%2 == 0 {
			d.stored(requestID(i), uint64(i+1), 0)
		}
	}
	prompt := make([]int32, 500)
	r := arrival(1)
	timed(b, func() { d.engines.see(r, prompt, ms) })
}

// timed reports quantiles of f's time.
func timed(b *testing.B, f func()) {
	var all []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		f()
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2]), "p50-ns")
	b.ReportMetric(float64(all[len(all)*99/100]), "p99-ns")
}

// Whatever becomes of requests, each is ended once.
func TestDeskIsBalanced(t *testing.T) {
	d := testDesk(t)
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Duration(0)
	open := map[int]bool{}
	for i := range 2000 {
		now += time.Duration(rng.IntN(20)) * ms
		if i%50 == 0 {
			d.engine(t, now, rng.IntN(25), rng.IntN(20))
		}
		n := rng.IntN(200)
		if !open[n] && d.engines.mine[requestID(n)] == nil && d.comes(n, now, withE2E(time.Duration(rng.IntN(9000)+1)*ms)).Admit {
			open[n] = true
		}
		n = rng.IntN(200)
		d.end(requestID(n), online.Ending{How: online.How(rng.IntN(3)), Tokens: int32(rng.IntN(50))}, now)
		delete(open, n)
		if d.engines.open != len(open) {
			t.Fatalf("%d are open, want %d", d.engines.open, len(open))
		}
	}
}
