package ingress

import (
	"crypto/sha256"
	"crypto/subtle"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/cadence-slo/cadence/schema"
)

// byProbe is the decision on a canary, which no rule is asked about.
const byProbe = "probe"

// wanted is how long after a request with an objective those without one compete with such requests for the engines' time.
const wanted = 40 * time.Second

// verdict is what was decided on a request, and what was expected of it.
type verdict struct {
	admission.Decision
	by      string            // the rule that decided, as events and headers name it; empty: none was asked
	outlook predictor.Outlook // zero if nothing could be predicted
	queue   time.Duration     // expected until the engine begins with it
	// Of admitted and refused events; see schema.Event.
	physics  time.Duration
	features []float32
	artifact string
}

// desk decides on requests as they arrive, and learns from how they end. Every method is for any goroutine. Times are since the
// server was made.
type desk struct {
	cfg   *Config
	born  time.Time
	tally *tally
	probe [sha256.Size]byte // of the token

	mu      sync.Mutex // guards what stands below
	engines *engines
	courts  map[string]*court // by pool
	rng     *rand.Rand
	number  uint64 // of the last request that was decided on
}

// court is the rule for one pool, and what was learned of its engines.
type court struct {
	predictor  *online.Predictor
	arm        admission.Arm
	controller *admission.Controller // asks arm
	open       *admission.Controller // of the same predictor, lets everything in
	objective  time.Duration         // until when requests without an objective compete with others
	workers    int                   // that the last request found
	artifact   string                // SHA-256 of the predictor's model; empty: it has none
}

// newDesk makes a desk for a valid configuration. digest tells what is cached of a prompt; nil: nothing is.
func newDesk(cfg *Config, born time.Time, digest func(*schema.PrefixDigest, string, []int32) int, seed uint64) (*desk, error) {
	d := &desk{cfg: cfg, born: born, tally: newTally(), probe: sha256.Sum256([]byte(cfg.ProbeToken)), engines: newEngines(digest),
		courts: map[string]*court{}, rng: rand.New(rand.NewPCG(seed, 0x61646d69))}
	_, err := d.court(cfg.Pool)
	return d, err
}

// court returns a pool's. If it can be made for one, it can for all. The caller holds mu, or has the desk for itself.
func (d *desk) court(pool string) (*court, error) {
	if c := d.courts[pool]; c != nil {
		return c, nil
	}
	cfg := online.DefaultConfig(d.cfg.level())
	cfg.Classes = maxClasses
	p, err := online.New(cfg)
	if err != nil {
		return nil, err
	}
	arm, err := d.cfg.arm()
	if err != nil {
		return nil, err
	}
	c := &court{predictor: p, arm: arm, controller: admission.NewController(arm, p, d.rng), open: admission.NewController(admission.None{}, p, d.rng)}
	d.courts[pool] = c
	return c, nil
}

// isProbe compares a client's token in constant time. Without a configured token nobody is a canary.
func (d *desk) isProbe(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], d.probe[:]) == 1 && d.cfg.ProbeToken != ""
}

// demand is the same for all attempts of one client at one request; 0: that cannot be told.
func (r *call) demand(prompt []int32) uint64 {
	if r.clientID == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.tenant + " " + r.clientID)) // never fails
	// Some clients send the same id with everything.
	last := prompt[max(0, len(prompt)-16):]
	b := make([]byte, 0, 64)
	for _, id := range last {
		b = append(b, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	}
	_, _ = h.Write(b)
	return h.Sum64() | 1
}

// decide decides on a request. One that is admitted must come to end.
func (d *desk) decide(r *call, prompt []int32, now time.Duration) verdict {
	begin := time.Now()
	v := d.judge(r, prompt, now)
	d.tally.decided(&v, time.Since(begin))
	return v
}

// judge is decide. A panic, which the server outlives, leaves mu free.
func (d *desk) judge(r *call, prompt []int32, now time.Duration) verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.engines.see(r, prompt, now)
	c, err := d.court(r.pool)
	if err != nil { // not after newDesk
		return verdict{Decision: admission.Decision{Admit: true, Note: err.Error()}}
	}
	c.workers = s.load.Workers
	d.number++
	age := max(0, now-r.arrived.Sub(d.born))
	a := admission.Arrival{ID: d.number, Now: now, Engine: s.engine, Load: s.load,
		Sequence: predictor.Sequence{PromptTokens: int32(len(prompt)), PrefillTokens: int32(len(prompt) - s.cached), CapTokens: r.output,
			Lengths: d.engines.class(r.tenant, r.kind, r.output), Age: age, E2E: r.deadline, TTFT: r.ttft},
		Request: admission.Request{Class: r.asked, Key: r.demand(prompt), PromptTokens: int32(len(prompt)), CachedTokens: int32(s.cached),
			CapTokens: r.output, E2E: r.deadline, TTFT: r.ttft}}
	if f, ok := c.arm.(*inFlight); ok {
		f.open = s.open
	}
	bare := r.deadline == 0 && r.ttft == 0 && d.cfg.Admission == ruleMarginal
	if r.deadline > 0 || r.ttft > 0 {
		c.objective = now + wanted
	}
	controller := c.controller
	if r.canary || bare && now >= c.objective {
		controller = c.open
	}
	v := verdict{}
	err = c.ask(controller, &a, &s, &v)
	if err == nil && !v.Admit && bare && s.room && v.Reason != admission.ProtectsGuaranteed {
		// Nobody is kept waiting by it, and it has no objective to miss.
		err = c.ask(c.open, &a, &s, &v)
	}
	if err != nil {
		in := admission.Input{Now: a.Now, Request: a.Request, Load: a.Load, Cold: true}
		arm := c.arm // by the load alone, where the rule looks at it; else it is let in
		if s.load.Workers == 0 {
			arm = admission.None{} // nor is the load known: workers that tell no states have room all the same
		}
		v = verdict{Decision: arm.Decide(&in, d.rng)}
		v.Note = s.note
	}
	if v.by = v.Reason.String(); r.canary {
		v.Admit, v.Propensity, v.RetryAfter, v.by = true, 1, 0, byProbe
	}
	if v.Admit {
		mine := &admitted{id: r.id, s: a.Sequence, at: now - age, room: s.room, outlook: v.outlook}
		mine.s.Age, mine.s.Guaranteed = 0, v.Class == schema.Guaranteed
		if err == nil {
			mine.number, mine.court = a.ID, c
		}
		d.engines.admit(mine, r.pool)
	}
	return v
}

// ask has a controller decide, and fills v. The error is predictor.ErrEngine, for what cannot be predicted; nothing was decided then.
func (c *court) ask(by *admission.Controller, a *admission.Arrival, s *sight, v *verdict) error {
	if s.engine == nil {
		return predictor.ErrEngine
	}
	decision, o, err := by.Decide(a)
	if err != nil {
		s.note = err.Error()
		return err
	}
	*v = verdict{Decision: decision, outlook: *o, artifact: c.artifact, physics: c.predictor.Physics(&a.Sequence),
		features: feature.Append(make([]float32, 0, feature.Count), a.Engine, &a.Sequence, c.predictor.Lengths(), c.predictor.Forecast())}
	own := a.Engine.Profile.Step(int(a.Sequence.PrefillTokens), 0, int(a.Sequence.PromptTokens))
	v.queue = max(0, o.First-a.Sequence.Age-a.Engine.Delay-own)
	return nil
}

// stored, started and end tell what becomes of an admitted request. What is not known of any more changes nothing.
func (d *desk) stored(id schema.RequestID, seq uint64, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engines.stored(id, seq, now)
}

func (d *desk) started(id schema.RequestID, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engines.started(id, now)
}

// end may be repeated; the first time counts. Its E2E is left to desk.
func (d *desk) end(id schema.RequestID, e online.Ending, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.engines.end(id, now)
	if o == nil {
		return
	}
	e.E2E = max(1, now-o.at)
	if o.court != nil {
		o.court.controller.End(o.number, e, now)
	}
	d.tally.ended(&o.outlook, &e)
}

// peer, beat, running and waiting take what ingresses, workers and schedulers say. The error is of settings that cannot be read.
func (d *desk) peer(s *schema.IngressState, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engines.peer(s, now)
}

func (d *desk) beat(s *schema.WorkerState, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engines.beat(s, now)
}

func (d *desk) running(s *schema.EngineState, now time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engines.running(s, now)
}

// fingerprint is that of all engines of a pool; empty: it is not known, or they differ.
func (d *desk) fingerprint(pool string, now time.Duration) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engines.fingerprint(pool, now)
}

func (d *desk) waiting(s *schema.PoolState, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engines.waiting(s, now)
}

// model makes a pool's predictor use another model; none is the physics alone. After an error it uses what it did.
func (d *desk) model(pool string, m LatencyModel, now time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := d.court(pool)
	if err != nil {
		return err
	}
	if err := c.predictor.Swap(m.Artifact, now); err != nil {
		return err
	}
	c.artifact = m.Digest
	return nil
}

// inFlight is the baseline that lets in so many requests for each worker.
type inFlight struct {
	perWorker int
	open      int // that the pool has
	retry     admission.Retry
}

// Name returns "in-flight".
func (a *inFlight) Name() string { return ruleInFlight }

// Decide counts. While no worker is known nothing is refused.
func (a *inFlight) Decide(in *admission.Input, rng *rand.Rand) admission.Decision {
	if in.Load.Workers == 0 || a.open < a.perWorker*in.Load.Workers {
		return admission.Decision{Admit: true, Reason: admission.ByDepth, Class: schema.BestEffort, Propensity: 1}
	}
	return admission.Decision{Reason: admission.ByDepth, Class: schema.BestEffort, RetryAfter: a.retry.After(in.Outlook.Drain, rng)}
}
