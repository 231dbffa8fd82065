package ingress

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what Prometheus reads. Labels have few values; tenants are none of them.
type metrics struct {
	requests    map[metricKey]prometheus.Counter // by kind and outcome
	refusals    map[schema.RefusalReason]prometheus.Counter
	cancels     map[schema.CancelReason]prometheus.Counter
	rejections  *prometheus.CounterVec // by the dialect's reason
	disconnects prometheus.Counter
	resumes     prometheus.Counter
	filled      prometheus.Counter
	ttft, e2e   prometheus.Observer
	prompt      prometheus.Counter
	output      prometheus.Counter

	mu      sync.Mutex
	refused map[schema.RefusalReason]uint64 // for /stats
	ended   map[schema.Outcome]uint64
}

type metricKey struct {
	kind    schema.Kind
	outcome schema.Outcome
}

var (
	allRefusals = []schema.RefusalReason{schema.RefusedCapacity, schema.RefusedDraining, schema.RefusedNoWorker,
		schema.RefusedUnavailable, schema.RefusedInfeasible, schema.RefusedSLO}
	allCancels = []schema.CancelReason{schema.CancelDisconnect, schema.CancelGrace, schema.CancelIngressLost,
		schema.CancelSlowReader, schema.CancelDrain, schema.CancelOperator}
	allOutcomes = []schema.Outcome{schema.OutcomeComplete, schema.OutcomeDisconnected, schema.OutcomeError}
)

// newMetrics registers the metrics of a server.
func newMetrics(reg prometheus.Registerer, s *Server) (*metrics, error) {
	const ns = "cadence_ingress_"
	m := &metrics{requests: map[metricKey]prometheus.Counter{}, refusals: map[schema.RefusalReason]prometheus.Counter{},
		cancels: map[schema.CancelReason]prometheus.Counter{}, refused: map[schema.RefusalReason]uint64{}, ended: map[schema.Outcome]uint64{}}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: ns + name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: ns + name, Help: help}, labels)
	}
	gauge := func(name, help string, f func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: ns + name, Help: help}, func() float64 { return float64(f()) })
	}
	histogram := func(name, help string, first float64, n int) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: ns + name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 2, n)})
	}
	requests := vec("requests_total", "admitted requests by endpoint and what the client saw", "kind", "outcome")
	refusals := vec("refusals_total", "requests refused with 503, by reason", "reason")
	cancels := vec("cancels_total", "requests that the ingress asked to cancel, by reason", "reason")
	m.rejections = vec("rejections_total", "requests answered with another error before admission, by reason", "reason")
	m.disconnects = counter("disconnects_total", "clients that went away from an open request")
	m.resumes = counter("resumes_total", "streams that a client came back to")
	m.filled = counter("filled_tokens_total", "tokens taken from the store after a gap")
	m.prompt = counter("prompt_tokens_total", "prompt tokens of admitted requests")
	m.output = counter("output_tokens_total", "output tokens relayed")
	ttft := histogram("ttft_seconds", "arrival to first token written", 0.001, 17)
	e2e := histogram("e2e_seconds", "arrival to last byte of complete answers", 0.001, 20)
	m.ttft, m.e2e = ttft, e2e
	collectors := []prometheus.Collector{requests, refusals, cancels, m.rejections, m.disconnects, m.resumes, m.filled, m.prompt, m.output, ttft, e2e,
		gauge("open", "requests held", func() int { n, _, _ := s.gate.count(); return n }),
		gauge("waiting", "requests waiting for their first token", func() int { _, n, _ := s.gate.count(); return n }),
		gauge("waiting_bytes", "bytes of the bodies of waiting requests", func() int { _, _, n := s.gate.count(); return int(n) }),
		gauge("connections", "connections", s.connections),
		gauge("events_pending", "events emitted and not stored yet", s.pendingEvents),
	}
	collectors = append(collectors, s.desk.collectors()...)
	for _, c := range collectors {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("ingress: registering metrics: %w", err)
		}
	}
	for _, kind := range []schema.Kind{schema.KindChat, schema.KindCompletion} {
		for _, o := range allOutcomes {
			m.requests[metricKey{kind, o}] = requests.WithLabelValues(string(kind), string(o))
		}
	}
	for _, r := range allRefusals {
		m.refusals[r] = refusals.WithLabelValues(string(r))
	}
	for _, r := range allCancels {
		m.cancels[r] = cancels.WithLabelValues(string(r))
	}
	return m, nil
}

// observe counts a delivered event.
func (m *metrics) observe(e *schema.Event) {
	outcome := schema.Outcome(e.Reason)
	m.requests[metricKey{e.Kind, outcome}].Inc()
	m.prompt.Add(float64(e.PromptTokens))
	m.output.Add(float64(e.OutputTokens))
	if e.TTFT > 0 {
		m.ttft.Observe(e.TTFT.Seconds())
	}
	if outcome == schema.OutcomeComplete {
		m.e2e.Observe(e.E2E.Seconds())
	}
	m.mu.Lock()
	m.ended[outcome]++
	m.mu.Unlock()
}

func (m *metrics) refuse(reason schema.RefusalReason) {
	m.refusals[reason].Inc()
	m.mu.Lock()
	m.refused[reason]++
	m.mu.Unlock()
}

func (m *metrics) cancelled(reason schema.CancelReason) { m.cancels[reason].Inc() }

func (m *metrics) rejected(e *openai.Error) { m.rejections.WithLabelValues(string(e.Reason)).Inc() }

// samples are the latencies of the last requests, for /stats.
type samples struct {
	mu        sync.Mutex
	ttft, e2e ring
}

const ringSize = 2048

// ring holds the last values added to it.
type ring struct {
	values [ringSize]time.Duration
	n      int // added so far
}

func (r *ring) add(d time.Duration) {
	r.values[r.n%ringSize] = d
	r.n++
}

func (s *samples) add(e *schema.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.TTFT > 0 {
		s.ttft.add(e.TTFT)
	}
	if e.Reason == string(schema.OutcomeComplete) {
		s.e2e.add(e.E2E)
	}
}

// quantiles are of the last 2,048 requests, nearest rank.
type quantiles struct {
	Count int   `json:"count"` // since the start
	P50   int64 `json:"p50_ns"`
	P90   int64 `json:"p90_ns"`
	P99   int64 `json:"p99_ns"`
	Max   int64 `json:"max_ns"`
}

func (r *ring) quantiles() quantiles {
	v := slices.Clone(r.values[:min(r.n, ringSize)])
	if len(v) == 0 {
		return quantiles{}
	}
	slices.Sort(v)
	at := func(percent int) int64 { return int64(v[(len(v)*percent+99)/100-1]) }
	return quantiles{Count: r.n, P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}
