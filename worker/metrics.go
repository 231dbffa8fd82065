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

	prompt, cached, preempted, wasted, evicted, copied prometheus.Counter
}

// newMetrics registers the metrics; inEffect are the labels of one that is always 1.
func newMetrics(r prometheus.Registerer, inEffect []setting, b *book, e func() *engine) (*metrics, error) {
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
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "cadence_worker_" + name + "_total", Help: help})
	}
	m.prompt = counter("prompt_tokens", "Tokens of prompts that were started.")
	m.cached = counter("cached_tokens", "Tokens of prompts that were found in the prefix cache.")
	m.preempted = counter("preemptions", "Requests that gave up their KV pages to others and were computed again.")
	m.wasted = counter("preempted_tokens", "Tokens whose KV was given up by a preemption and had to be computed again.")
	m.evicted = counter("prefix_evictions", "Leaves evicted from the prefix cache.")
	m.copied = counter("kv_page_copies", "KV pages copied because they were shared and had to be written.")
	for _, how := range []string{string(schema.FinishStop), string(schema.FinishLength), string(schema.Failed), string(schema.Cancelled), "replaced", "abandoned"} {
		m.ended.WithLabelValues(how)
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	labels := prometheus.Labels{}
	for _, s := range inEffect {
		labels[s.key] = s.value
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cadence_worker_info", Help: "1; the labels are the worker's settings as they took effect.", ConstLabels: labels,
	})
	info.Set(1)
	for _, c := range []prometheus.Collector{
		info,
		m.steps, m.prefill, m.output, m.ended, m.verdicts, m.fenced, m.prompt, m.cached, m.preempted, m.wasted, m.evicted, m.copied,
		gauge("cadence_worker_slots", "Requests that the worker takes at once.", func() float64 { return float64(b.plan.MaxBatch) }),
		gauge("cadence_worker_running", "Requests in the engine.", func() float64 { return float64(e().running.Load()) }),
		gauge("cadence_worker_waiting", "Requests accepted and not in the engine yet.", func() float64 {
			return max(0, float64(b.standing().slots)-float64(e().running.Load()))
		}),
		gauge("cadence_worker_kv_pages", "KV pages of the engine.", func() float64 { return float64(b.plan.KVPages) }),
		gauge("cadence_worker_kv_reserved_pages", "KV pages reserved for the peaks of accepted requests.", func() float64 { return float64(b.standing().pages) }),
		gauge("cadence_worker_kv_used_pages", "KV pages of running requests and cached prefixes.", func() float64 { return float64(e().usedPages.Load()) }),
		gauge("cadence_worker_kv_cached_pages", "KV pages of cached prefixes.", func() float64 { return float64(e().cachedPages.Load()) }),
		gauge("cadence_worker_kv_highest_page", "Highest KV page in use now, from 1; 0: none is. It falls again.", func() float64 { return float64(e().highWater.Load()) }),
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

// totals counts what has happened since before.
func (m *metrics) totals(before, now *batch.Totals) {
	for _, c := range []struct {
		counter     prometheus.Counter
		before, now uint64
	}{
		{m.prompt, before.PromptTokens, now.PromptTokens}, {m.cached, before.CachedTokens, now.CachedTokens},
		{m.preempted, before.Preemptions, now.Preemptions}, {m.wasted, before.WastedTokens, now.WastedTokens},
		{m.evicted, before.Evictions, now.Evictions}, {m.copied, before.PageCopies, now.PageCopies},
	} {
		if c.now > c.before {
			c.counter.Add(float64(c.now - c.before))
		}
	}
}
