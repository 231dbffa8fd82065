package worker

import (
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the worker's own; a process with several workers registers each with a label of its own
// (prometheus.WrapRegistererWith).
type metrics struct {
	steps    prometheus.Histogram
	prefill  prometheus.Counter
	output   prometheus.Counter
	ended    *prometheus.CounterVec
	verdicts *prometheus.CounterVec
	fenced   prometheus.Counter
}

func newMetrics(r prometheus.Registerer, b *book, e func() *engine) (*metrics, error) {
	m := &metrics{
		steps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cadence_worker_step_seconds", Help: "Time of an engine step.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		prefill: prometheus.NewCounter(prometheus.CounterOpts{Name: "cadence_worker_prefill_tokens_total", Help: "Tokens prefilled."}),
		output:  prometheus.NewCounter(prometheus.CounterOpts{Name: "cadence_worker_output_tokens_total", Help: "Tokens generated."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cadence_worker_ended_total", Help: "Attempts that ended here, by how: stop, length, failed, cancelled, replaced, abandoned.",
		}, []string{"how"}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cadence_worker_verdicts_total", Help: "Answers to dispatched requests.",
		}, []string{"verdict"}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{Name: "cadence_worker_fenced_total", Help: "Times that this worker gave up its id."}),
	}
	for _, how := range []string{string(schema.FinishStop), string(schema.FinishLength), string(schema.Failed), string(schema.Cancelled), "replaced", "abandoned"} {
		m.ended.WithLabelValues(how)
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		m.steps, m.prefill, m.output, m.ended, m.verdicts, m.fenced,
		gauge("cadence_worker_slots", "Requests that the worker takes at once.", func() float64 { return float64(b.plan.MaxBatch) }),
		gauge("cadence_worker_running", "Requests in the engine.", func() float64 { return float64(e().running.Load()) }),
		gauge("cadence_worker_waiting", "Requests accepted and not in the engine yet.", func() float64 {
			return max(0, float64(b.standing().slots)-float64(e().running.Load()))
		}),
		gauge("cadence_worker_kv_pages", "KV pages of the engine.", func() float64 { return float64(b.plan.KVPages) }),
		gauge("cadence_worker_kv_reserved_pages", "KV pages reserved for the peaks of accepted requests.", func() float64 { return float64(b.standing().pages) }),
		gauge("cadence_worker_kv_used_pages", "KV pages that hold tokens.", func() float64 { return float64(e().usedPages.Load()) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("worker: registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) step(b *batch.Batch, took time.Duration) {
	m.steps.Observe(took.Seconds())
	m.prefill.Add(float64(b.PrefillTokens))
}
