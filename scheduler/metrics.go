package scheduler

import (
	"errors"
	"time"

	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the collectors of one scheduler, all with its pool as a label. Gauges are set by the owner about once a second.
type metrics struct {
	all []prometheus.Collector
	reg prometheus.Registerer

	depth, oldest, live                  prometheus.Gauge
	inFlight, slots, pagesUsed, pagesAll *prometheus.GaugeVec
	wait, dispatch, appendTime, group    prometheus.Histogram
	attempts                             prometheus.Histogram
	verdicts, unanswered, ended, seals   *prometheus.CounterVec
}

func newMetrics(pool string, reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{reg: prometheus.WrapRegistererWith(prometheus.Labels{"pool": pool}, reg)}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "cadence", Subsystem: "scheduler", Name: name, Help: help})
		m.all = append(m.all, g)
		return g
	}
	byWorker := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "cadence", Subsystem: "scheduler", Name: name, Help: help}, []string{"worker"})
		m.all = append(m.all, g)
		return g
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "cadence", Subsystem: "scheduler", Name: name, Help: help}, labels)
		m.all = append(m.all, c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "cadence", Subsystem: "scheduler", Name: name, Help: help, Buckets: buckets})
		m.all = append(m.all, h)
		return h
	}
	short := prometheus.ExponentialBuckets(50e-6, 2, 16) // 50 µs to 1.6 s
	m.depth = gauge("queue_depth", "Requests waiting in the queue.")
	m.oldest = gauge("queue_oldest_seconds", "Longest wait of a request in the queue.")
	m.live = gauge("requests", "Requests in hand: waiting and at workers.")
	m.inFlight = byWorker("worker_in_flight", "Requests bound to a worker.")
	m.slots = byWorker("worker_slots", "Requests that a worker takes at once.")
	m.pagesUsed = byWorker("worker_kv_pages_reserved", "KV pages reserved on a worker by the peaks of its requests.")
	m.pagesAll = byWorker("worker_kv_pages", "KV pages of a worker; 0 is unknown.")
	m.wait = histogram("queue_wait_seconds", "From a request's store time (or its return to the queue) to its dispatch.", prometheus.ExponentialBuckets(100e-6, 2.5, 16))
	m.dispatch = histogram("dispatch_seconds", "Time of one dispatch by request and reply.", short)
	m.appendTime = histogram("append_seconds", "Time of one append to EVENTS.", short)
	m.group = histogram("append_events", "Events in one append.", prometheus.ExponentialBuckets(1, 2, 10))
	m.attempts = histogram("request_attempts", "Attempts of a request that ended.", []float64{0, 1, 2, 3, 4, 6, 10})
	m.verdicts = counter("verdicts_total", "Answers of workers to dispatched requests.", "verdict")
	m.unanswered = counter("dispatches_unanswered_total", "Dispatches without an answer.", "cause")
	m.ended = counter("requests_ended_total", "Requests that ended, by terminal event and its reason.", "type", "reason")
	m.seals = counter("seals_total", "Seals asked of ingresses.", "result")
	for _, c := range m.all {
		if err := m.reg.Register(c); err != nil {
			m.unregister()
			return nil, errors.Join(errors.New("scheduler: registering metrics"), err)
		}
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}

// observe sets the gauges.
func (m *metrics) observe(s core.Stats) {
	m.depth.Set(float64(s.Waiting))
	m.oldest.Set(s.Oldest.Seconds())
	m.live.Set(float64(s.Live))
	for _, w := range s.Workers {
		m.inFlight.WithLabelValues(string(w.Worker)).Set(float64(w.InFlight))
		m.slots.WithLabelValues(string(w.Worker)).Set(float64(w.Slots))
		m.pagesUsed.WithLabelValues(string(w.Worker)).Set(float64(w.Pages))
		m.pagesAll.WithLabelValues(string(w.Worker)).Set(float64(w.KVPages))
	}
}

// forget drops the gauges of a worker whose life has ended.
func (m *metrics) forget(id schema.WorkerID) {
	for _, g := range []*prometheus.GaugeVec{m.inFlight, m.slots, m.pagesUsed, m.pagesAll} {
		g.DeleteLabelValues(string(id))
	}
}

// answered counts an answer to a dispatch that took so long. It is called by senders.
func (m *metrics) answered(a *core.Answer, took time.Duration) {
	switch a.Result {
	case core.Answered:
		m.dispatch.Observe(took.Seconds())
		for _, v := range a.Verdicts {
			switch v {
			case schema.VerdictAccepted, schema.VerdictDuplicate, schema.VerdictFull, schema.VerdictDraining, schema.VerdictStaleEpoch, schema.VerdictInvalid:
			default:
				v = "unknown"
			}
			m.verdicts.WithLabelValues(string(v)).Inc()
		}
	default:
		m.unanswered.WithLabelValues(resultNames[a.Result]).Inc()
	}
}

var resultNames = map[core.Result]string{core.Answered: "answered", core.NoAnswer: "no_answer", core.NoListener: "no_listener", core.TooLarge: "too_large"}
