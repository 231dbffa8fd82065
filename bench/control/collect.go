package control

import (
	"math"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor/online"
)

// Seen is what a run without admission showed, for arms that are fitted once. When the run is over it is only read.
type Seen struct {
	// Predictor has learned from it and has not been used since.
	Predictor *online.Predictor
	// Samples are of all requests, in the order in which they ended, and Latencies theirs. Of one that was not answered both have the
	// time until it ended, or the client's patience if that is longer: leaving it out would make the engine look faster the worse it does.
	Samples   []admission.Sample
	Latencies []time.Duration

	classes *admission.Classes // of the predictor
	asked   map[int]admission.Sample
	least   time.Duration // of what was not answered
}

// watcher is a predictor that remembers hours and claims nothing, so that it never takes what it sees for a change, before which it
// would forget everything.
func watcher(level float64) (*online.Predictor, error) {
	c := online.DefaultConfig(level)
	c.Classes, c.Window, c.Warm = classes, 1<<14, math.MaxInt
	return online.New(c)
}

// Collect lets all of a simulation's requests in and keeps what an arm can be fitted to, in what it returns: complete after the
// run. Of the options it needs only the profile. It takes cfg's Admit and Sink as Attach does.
func Collect(cfg *sim.Config, o Options) (*Seen, error) {
	p, err := watcher(o.level())
	if err != nil {
		return nil, err
	}
	o.Ingresses = 1
	c := newControl(cfg, &o)
	d := c.newDesk()
	d.controller = admission.NewController(admission.None{}, p, d.rng)
	c.seen = &Seen{Predictor: p, classes: d.classes, asked: map[int]admission.Sample{}, least: cfg.ClientTimeout}
	cfg.Admit = c.admit
	c.listen()
	return c.seen, nil
}

// ask keeps what is known of a request at its arrival.
func (s *Seen) ask(index int, r *admission.Request, load *admission.Load) {
	s.asked[index] = admission.Sample{PrefillTokens: float64(r.PromptTokens - r.CachedTokens), CapTokens: float64(r.CapTokens),
		QueuedTokens: float64(load.Tokens)}
}

// end adds what became of it.
func (s *Seen) end(r *record.Request) {
	sample, ok := s.asked[r.Index]
	if !ok {
		return
	}
	delete(s.asked, r.Index)
	if sample.E2E = r.E2E; r.Outcome != record.OK {
		sample.E2E = max(r.E2E, s.least)
	}
	s.Samples = append(s.Samples, sample)
	s.Latencies = append(s.Latencies, sample.E2E)
}
