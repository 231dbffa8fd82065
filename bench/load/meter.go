package load

import (
	"slices"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// Progress is how a run goes. Rates and quantiles are of the last seconds.
type Progress struct {
	At       time.Duration // since the start of the run
	Sent     int           // since the start
	InFlight int
	Shed     int           // since the start
	Failed   int           // since the start: errors and time-outs
	Rate     float64       // sent, requests/s
	Goodput  float64       // answered within the objective, requests/s
	TTFT99   time.Duration // 0: no answer yet
	E2E99    time.Duration // 0: no answer yet
	LagMax   time.Duration // of the last seconds
}

// window is how many seconds Progress looks back.
const window = 10

// meter counts for Progress. It is safe for concurrent use.
type meter struct {
	mu           sync.Mutex
	sent, done   int
	shed, failed int
	seconds      [window + 1]second // a ring; the second that runs is not told yet
	newest       int                // the greatest second that is in the ring
	answers      []answer           // a ring of the last ones
	next         int                // in answers
}

type second struct {
	sent, good int
	lag        time.Duration
}

type answer struct{ at, ttft, e2e time.Duration }

// maxAnswers bounds how many answers a quantile is of.
const maxAnswers = 4096

// second returns the counts of the second at, dropping those that it takes the place of; nil if it is too old.
func (m *meter) second(at time.Duration) *second {
	n := int(at / time.Second)
	for m.newest < n {
		m.newest++
		m.seconds[m.newest%len(m.seconds)] = second{}
	}
	if n <= m.newest-len(m.seconds) {
		return nil
	}
	return &m.seconds[n%len(m.seconds)]
}

// send counts a request that is sent at a time since the start, with its lag.
func (m *meter) send(at, lag time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent++
	if s := m.second(at); s != nil {
		s.sent++
		s.lag = max(s.lag, lag)
	}
}

// end counts a request that ended at a time since the start.
func (m *meter) end(at time.Duration, r *record.Request, good bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done++
	switch r.Outcome {
	case record.Shed:
		m.shed++
	case record.Error, record.Timeout:
		m.failed++
	case record.OK:
		if a := (answer{at, r.TTFT, r.E2E}); len(m.answers) < maxAnswers {
			m.answers = append(m.answers, a)
		} else {
			m.answers[m.next] = a
			m.next = (m.next + 1) % maxAnswers
		}
		if s := m.second(at); good && s != nil {
			s.good++
		}
	}
}

// progress looks back from a time since the start.
func (m *meter) progress(at time.Duration) Progress {
	p, answers := m.look(at)
	var e2e, ttft []time.Duration
	for _, a := range answers {
		e2e = append(e2e, a.e2e)
		if a.ttft >= 0 {
			ttft = append(ttft, a.ttft)
		}
	}
	p.E2E99, p.TTFT99 = p99(e2e), p99(ttft)
	return p
}

// look is progress without its quantiles, which are of the answers. Sorting them takes too long for send to wait for it.
func (m *meter) look(at time.Duration) (p Progress, answers []answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p = Progress{At: at, Sent: m.sent, InFlight: m.sent - m.done, Shed: m.shed, Failed: m.failed}
	m.second(at)
	full := min(window, int(at/time.Second)) // whole seconds before the one that runs
	if full == 0 {
		return p, nil
	}
	for n := m.newest - full; n < m.newest; n++ {
		s := &m.seconds[n%len(m.seconds)]
		p.Rate += float64(s.sent) / float64(full)
		p.Goodput += float64(s.good) / float64(full)
		p.LagMax = max(p.LagMax, s.lag)
	}
	for _, a := range m.answers {
		if a.at >= at-window*time.Second {
			answers = append(answers, a)
		}
	}
	return p, answers
}

// p99 sorts; 0 of nothing.
func p99(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[(len(d)*99+99)/100-1]
}
