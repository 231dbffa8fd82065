package service

import (
	"time"

	"github.com/cadence-slo/cadence/trainer"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what Prometheus reads.
type metrics struct {
	trainings            *prometheus.CounterVec
	failed               prometheus.Counter
	waiting, rows, error prometheus.Gauge
	width, kept, lasted  prometheus.Gauge
}

func newMetrics() metrics {
	const ns = "cadence_trainer_"
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: ns + name, Help: help})
	}
	m := metrics{
		trainings: prometheus.NewCounterVec(prometheus.CounterOpts{Name: ns + "trainings_total", Help: "candidates that were compared, by reason"}, []string{"reason"}),
		failed:    prometheus.NewCounter(prometheus.CounterOpts{Name: ns + "failures_total", Help: "attempts that came to no candidate, or could not be published"}),
		waiting:   gauge("new_requests", "requests that neither the running model nor the last attempt has seen"),
		rows:      gauge("requests", "requests that the last candidate was made of"),
		error:     gauge("error_ratio", "median error of the last candidate by that of the physics"),
		width:     gauge("width_ratio", "bounds of the last candidate by those of the running model"),
		kept:      gauge("coverage_ratio", "share of the last candidate's bounds that held on held-out requests"),
		lasted:    gauge("duration_seconds", "time that the last training took, without reading"),
	}
	for _, r := range []trainer.Reason{trainer.NotWorse, trainer.Restores, trainer.First, trainer.TooFewRows, trainer.LessBounded, trainer.Coverage,
		trainer.InGroup, trainer.Wider} {
		m.trainings.WithLabelValues(string(r))
	}
	return m
}

func (m *metrics) trained(r *Report, lasted time.Duration) {
	m.trainings.WithLabelValues(string(r.Reason)).Inc()
	m.rows.Set(float64(r.Rows))
	m.width.Set(r.Width)
	m.kept.Set(r.Candidate.Kept)
	m.lasted.Set(lasted.Seconds())
	if r.PhysicsError > 0 {
		m.error.Set(r.Error / r.PhysicsError)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.trainings, m.failed, m.waiting, m.rows, m.error, m.width, m.kept, m.lasted}
}
