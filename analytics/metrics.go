package analytics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// projectorMetrics are a projector's collectors, each labelled by table.
type projectorMetrics struct {
	rows        *prometheus.CounterVec
	inserts     *prometheus.CounterVec // by result
	deadLetters *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	sessions    *prometheus.CounterVec
	lag         *lagCollector
}

func newProjectorMetrics() *projectorMetrics {
	return &projectorMetrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cadence_projector_rows_total", Help: "Rows inserted, repetitions counted."}, []string{"table"}),
		inserts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cadence_projector_inserts_total", Help: "Inserts by result: ok, retried or rejected."}, []string{"table", "result"}),
		deadLetters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cadence_projector_dead_letters_total", Help: "Messages that no row could be made of."}, []string{"table"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cadence_projector_insert_seconds", Help: "Duration of one insert.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}, []string{"table"}),
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cadence_projector_sessions_total", Help: "Times that reading began at the stored position."}, []string{"table"}),
		lag: &lagCollector{
			messages: prometheus.NewDesc("cadence_projector_lag_messages", "Messages stored in the stream and not in the table.", []string{"table"}, nil),
			seconds:  prometheus.NewDesc("cadence_projector_lag_seconds", "Age of the oldest message not in the table; 0 if there is none.", []string{"table"}, nil),
			position: prometheus.NewDesc("cadence_projector_position_sequence", "Sequence up to which the stream is in the table.", []string{"table"}, nil),
			tables:   map[string]*lag{},
		},
	}
}

func (m *projectorMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.rows, m.inserts, m.deadLetters, m.seconds, m.sessions, m.lag}
}

// of returns the metrics of one table.
func (m *projectorMetrics) of(table string) *tableMetrics {
	l := &lag{}
	m.lag.tables[table] = l
	return &tableMetrics{
		rows: m.rows.WithLabelValues(table),
		ok:   m.inserts.WithLabelValues(table, "ok"), retried: m.inserts.WithLabelValues(table, "retried"),
		rejected:    m.inserts.WithLabelValues(table, "rejected"),
		deadLetters: m.deadLetters.WithLabelValues(table), seconds: m.seconds.WithLabelValues(table),
		sessions: m.sessions.WithLabelValues(table), lag: l,
	}
}

type tableMetrics struct {
	rows, ok, retried, rejected, deadLetters, sessions prometheus.Counter
	seconds                                            prometheus.Observer
	lag                                                *lag
}

// lag is what the projector knows of one stream.
type lag struct {
	mu       sync.Mutex
	messages uint64    // not landed yet
	oldest   time.Time // store time of a message at or before the first that has not landed; zero if unknown
	position uint64
}

// landed notes that the stream is in the table up to p, and how many messages are not.
func (l *lag) landed(p place, messages uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.position, l.oldest, l.messages = p.seq, p.stored, messages
}

// waiting notes how many messages have not landed.
func (l *lag) waiting(messages uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = messages
}

// first notes the store time of a message that waits, if no earlier one is known.
func (l *lag) first(stored time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.messages == 0 || l.oldest.IsZero() {
		l.oldest = stored
	}
	l.messages = max(l.messages, 1)
}

type lagCollector struct {
	messages, seconds, position *prometheus.Desc
	tables                      map[string]*lag // not written after construction
}

// Describe implements prometheus.Collector.
func (c *lagCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.messages
	ch <- c.seconds
	ch <- c.position
}

// Collect implements prometheus.Collector.
func (c *lagCollector) Collect(ch chan<- prometheus.Metric) {
	for table, l := range c.tables {
		l.mu.Lock()
		messages, oldest, position := l.messages, l.oldest, l.position
		l.mu.Unlock()
		age := 0.0
		if messages > 0 && !oldest.IsZero() {
			age = max(0, time.Since(oldest).Seconds())
		}
		ch <- prometheus.MustNewConstMetric(c.messages, prometheus.GaugeValue, float64(messages), table)
		ch <- prometheus.MustNewConstMetric(c.seconds, prometheus.GaugeValue, age, table)
		ch <- prometheus.MustNewConstMetric(c.position, prometheus.GaugeValue, float64(position), table)
	}
}
