package ingress

import (
	"math"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/predictor/online"
	"github.com/prometheus/client_golang/prometheus"
)

// tally is what Prometheus reads of the decisions. It is for any goroutine.
type tally struct {
	decisions *prometheus.CounterVec // by rule and outcome
	blind     prometheus.Counter
	took      prometheus.Histogram
	ratio     prometheus.Histogram
	bounds    *prometheus.CounterVec
}

const tallyPrefix = "cadence_ingress_admission_"

func newTally() *tally {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: tallyPrefix + name, Help: help}, labels)
	}
	return &tally{
		decisions: vec("decisions_total", "decisions by the rule that settled them and their outcome (admitted, refused)", "decision", "outcome"),
		blind:     prometheus.NewCounter(prometheus.CounterOpts{Name: tallyPrefix + "blind_total", Help: "decisions without a prediction: no fresh state, or no profile"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: tallyPrefix + "decision_seconds", Help: "time of a decision",
			Buckets: prometheus.ExponentialBuckets(4e-6, 2, 14)}),
		ratio: prometheus.NewHistogram(prometheus.HistogramOpts{Name: tallyPrefix + "prediction_log_ratio",
			Help: "natural logarithm of the latency by the predicted median, of answers that are complete", Buckets: prometheus.LinearBuckets(-2, 0.25, 17)}),
		bounds: vec("bounds_total", "bounds that were claimed for requests that have ended (held, missed, unknown: the client left before)", "verdict"),
	}
}

// decided counts a decision.
func (t *tally) decided(v *verdict, took time.Duration) {
	outcome := "refused"
	if v.Admit {
		outcome = "admitted"
	}
	t.decisions.WithLabelValues(v.by, outcome).Inc()
	if v.outlook.Predicted == 0 {
		t.blind.Inc()
	}
	t.took.Observe(took.Seconds())
}

// ended compares what was expected of a request with how it ended.
func (t *tally) ended(o *predictor.Outlook, e *online.Ending) {
	if e.How == online.Completed && o.Predicted > 0 {
		t.ratio.Observe(math.Log(e.E2E.Seconds() / o.Predicted.Seconds()))
	}
	if o.Bound <= 0 {
		return
	}
	verdict := "missed"
	switch {
	case e.How == online.Completed && e.E2E <= o.Bound:
		verdict = "held"
	case e.How == online.Left && e.E2E <= o.Bound:
		verdict = "unknown"
	}
	t.bounds.WithLabelValues(verdict).Inc()
}

// collectors are all metrics of a desk.
func (d *desk) collectors() []prometheus.Collector {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: tallyPrefix + name, Help: help}, func() float64 {
			d.mu.Lock()
			defer d.mu.Unlock()
			return f()
		})
	}
	now := func() time.Duration { return time.Since(d.born) }
	all := []prometheus.Collector{d.tally.decisions, d.tally.blind, d.tally.took, d.tally.ratio, d.tally.bounds,
		gauge("open", "requests that were let in and have not ended", func() float64 { return float64(d.engines.open) }),
		gauge("cold", "pools of which too few requests have ended for a bound", func() float64 {
			n := 0.0
			for _, c := range d.courts {
				if c.predictor.Cold() {
					n++
				}
			}
			return n
		}),
		gauge("state_age_seconds", "age of the newest state of an engine; -1: there is none", func() float64 { return d.engines.age(now()) }),
	}
	dearest := func(of func(*admission.Marginal, time.Duration, int) float64) func() float64 {
		return func() float64 {
			most := 0.0
			for _, c := range d.courts {
				if m, ok := c.arm.(*admission.Marginal); ok && c.workers > 0 {
					most = max(most, of(m, now(), c.workers))
				}
			}
			return most
		}
	}
	return append(all,
		gauge("price_ratio", "price of a second of an engine's time, in requests within their objectives, in the pool where it is highest", dearest((*admission.Marginal).Lambda)),
		gauge("demand_ratio", "engines' time that is asked for, by the time that there is, in the pool where it is highest", dearest((*admission.Marginal).Demand)))
}

// age is how old the newest state of an engine is, in seconds.
func (e *engines) age(now time.Duration) float64 {
	age := -1.0
	for _, w := range e.order {
		if a := (now - w.at).Seconds(); w.heard && (age < 0 || a < age) {
			age = a
		}
	}
	return age
}
