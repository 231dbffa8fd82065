package load

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
)

// DefaultLagBudget is how far the generator may be behind its schedule at most, see Trial.
const DefaultLagBudget = 250 * time.Millisecond

// Trial is one run of a workload against a server, with its books.
//
// The run is invalid if the generator did not keep its schedule (one request was later than Run.LagBudget, or more than one, and
// more than one in a hundred, later than a tenth of it), if its lag was more than a tenth of what it measured (in the 99th percentile
// of the tightest objective, in the median of the median TTFT; a 250th of the budget is always allowed), if nothing arrived in the
// measured phase, if it could not send a request for a lack of files or ports, if every request failed, or if, unless the form is capped, more than one answer in a hundred was of another
// length than was asked for: then it says nothing about the server.
type Trial struct {
	Client *Client
	Form   *Form
	Source workload.Source
	// Arrivals are offsets from the start of the run, ascending; those from Run.Length on are left out. nil: the times of
	// Source, which must be workload.Timed then. They are never rescaled.
	Arrivals iter.Seq[time.Duration]
	// Drain is how long after Run.Length requests may go on; those still open then are censored. 0: cut at once.
	Drain time.Duration
	// Run is what is known of the run beforehand. Length, Warmup and Tail count; a Timed source whose times end before Length, or
	// with a Length of 0, makes it theirs.
	// LagBudget 0 is DefaultLagBudget.
	Run record.Run
	// Sink gets every request as it ends, one at a time; nil drops them. Its error ends the run.
	Sink func(*record.Request) error
	// Progress, if not nil, is called once per Every (> 0) by a goroutine of its own, never after Measure has returned.
	Progress func(Progress)
	Every    time.Duration
	// NoITL leaves the times between tokens out of the books.
	NoITL bool
}

// planned is a request that is ready to be sent.
type planned struct {
	at  time.Duration
	q   workload.Request
	req *Request
}

// lookAhead is how many requests are made before their time, so that making them delays none.
const lookAhead = 64

// Measure carries the trial out and returns what it was; the requests went to Sink. The end of ctx ends the run early: what is
// there until then counts, requests that are open are censored, and the run says that it is partial; that is no error.
func (t *Trial) Measure(ctx context.Context) (*record.Run, error) {
	run := t.Run
	arrivals, err := t.complete(&run)
	if err != nil {
		return nil, err
	}
	run.Version, run.Time = record.Version, time.Now().UTC()
	stop := make(chan struct{})
	ahead := t.plan(arrivals, run.Length, stop)
	var (
		inner, cancel = context.WithCancel(ctx)
		current       planned
		begin         = time.Now()
		books         = &books{trial: t, run: &run, open: map[int]workload.Request{}, cancel: cancel, begin: begin}
		watch         sync.WaitGroup
		ended         = make(chan struct{})
	)
	defer cancel()
	if t.Progress != nil {
		watch.Go(func() { books.watch(ended) })
	}
	sum, err := Run(inner, Plan{
		Client: t.Client, Length: run.Length, Drain: t.Drain,
		Arrivals: func(yield func(time.Duration) bool) {
			for current = range ahead {
				if !yield(current.at) {
					return
				}
			}
		},
		Next: func(i int) *Request { books.expect(i, current.q); return current.req },
		Sent: func(_ int, lag time.Duration) { books.meter.send(time.Since(begin), lag) },
		Sink: books.enter,
	})
	close(stop)
	for range ahead { // until its goroutine has ended
	}
	close(ended)
	watch.Wait()
	if books.err != nil {
		return nil, books.err
	}
	if sum == nil || err != nil && ctx.Err() == nil {
		return nil, err
	}
	run.Wall, run.Partial = sum.Length, ctx.Err() != nil
	books.close(sum)
	return &run, nil
}

// Validate returns the error with which Measure would not begin.
func (t *Trial) Validate() error {
	run := t.Run
	_, err := t.complete(&run)
	return err
}

// complete checks the trial, fills in what follows from it, and returns the arrivals.
func (t *Trial) complete(run *record.Run) (iter.Seq[time.Duration], error) {
	arrivals := t.Arrivals
	if arrivals == nil {
		timed, ok := t.Source.(workload.Timed)
		if !ok {
			return nil, fmt.Errorf("%w: workload %s has no arrival times of its own", ErrConfig, t.Source.Name())
		}
		arrivals, run.Arrivals = timed.Arrivals(), "trace"
		n, all, last := 0, 0, time.Duration(-1)
		for at := range arrivals {
			if all++; run.Length == 0 || at < run.Length {
				n, last = n+1, at
			}
		}
		if n == all { // it ends before the run would
			run.Length = last + 1
		} else {
			run.Notes = append(run.Notes, fmt.Sprintf("the trace was cut after %v: %d of its %d requests were offered", run.Length, n, all))
		}
		run.Rate = float64(n) / max(run.Length.Seconds(), 1e-9)
	}
	switch {
	case run.Length <= 0:
		return nil, fmt.Errorf("%w: length is %v, want more than 0", ErrConfig, run.Length)
	case run.Warmup < 0 || run.Tail < 0 || run.Warmup+run.Tail >= run.Length:
		return nil, fmt.Errorf("%w: warmup %v and tail %v leave nothing of a length of %v", ErrConfig, run.Warmup, run.Tail, run.Length)
	case t.Drain < 0:
		return nil, fmt.Errorf("%w: drain is %v, want 0 or more", ErrConfig, t.Drain)
	case t.Progress != nil && t.Every <= 0:
		return nil, fmt.Errorf("%w: every is %v, want more than 0", ErrConfig, t.Every)
	}
	if err := t.Form.Validate(); err != nil {
		return nil, err
	}
	run.Workload, run.WorkloadSpec = t.Source.Name(), t.Source.Describe()
	if run.SLOs == nil {
		run.SLOs = t.Source.SLOs()
	}
	if run.Model == "" {
		run.Model = t.Form.Model
	}
	if run.LagBudget == 0 {
		run.LagBudget = DefaultLagBudget
	}
	// What the server counted is for those to say who can ask it.
	run.PromptTokens, run.CachedTokens, run.Preemptions = -1, -1, -1
	return arrivals, nil
}

// plan makes requests ahead of their time, until arrivals end or stop is closed; then the channel is closed.
func (t *Trial) plan(arrivals iter.Seq[time.Duration], length time.Duration, stop <-chan struct{}) <-chan planned {
	ahead := make(chan planned, lookAhead)
	go func() {
		defer close(ahead)
		i := 0
		for at := range arrivals {
			if at >= length {
				return
			}
			q := t.Source.Request(i)
			select {
			case ahead <- planned{at, q, t.Form.Request(&q)}:
			case <-stop:
				return
			}
			i++
		}
	}()
	return ahead
}

// books are kept of a run that goes on.
type books struct {
	trial  *Trial
	run    *record.Run
	meter  meter
	cancel context.CancelFunc // ends the run
	begin  time.Time

	mu        sync.Mutex
	open      map[int]workload.Request // by index
	all       int
	measured  int
	failed    int
	late      int // by more than a tenth of the budget
	unsent    int // for the generator's own lack of something
	answered  int
	uncounted int // of the answered, without usage
	otherwise int // of the answered, of another length than was asked for

	// writing is held while Sink is called, mu never: a disk that stalls must not hold the schedule up.
	writing sync.Mutex
	err     error
}

// expect notes a request that is to be sent.
func (b *books) expect(i int, q workload.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[i] = q
}

// enter takes what came of a request.
func (b *books) enter(r *Record) {
	b.mu.Lock()
	q := b.open[r.Index]
	delete(b.open, r.Index)
	b.mu.Unlock()

	row := Row(r, &q, b.trial.Form.MaxTokens(&q))
	row.Phase = b.run.PhaseAt(r.Intended)
	if b.trial.NoITL {
		row.ITL = nil
	}
	b.meter.end(time.Since(b.begin), &row, b.run.Good(&row))

	b.count(r, &row)

	b.writing.Lock()
	defer b.writing.Unlock()
	if b.trial.Sink == nil || b.err != nil {
		return
	}
	if b.err = b.trial.Sink(&row); b.err != nil {
		b.cancel()
	}
}

// count adds a request up.
func (b *books) count(r *Record, row *record.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all++
	if row.Phase == record.Measure {
		b.measured++
	}
	if row.Lag > b.run.LagBudget/10 {
		b.late++
	}
	switch row.Outcome {
	case record.Error:
		b.failed++
		if r.Outcome == ConnectError && r.Reason == Generator {
			b.unsent++
		}
	case record.OK:
		b.answered++
		if r.Usage == nil {
			b.uncounted++
		} else if row.OutputTokens != row.CapTokens {
			b.otherwise++
		}
	}
}

// close completes the run's description.
func (b *books) close(sum *Summary) {
	run := b.run
	run.LagP99, run.LagMax = sum.Lag.P99, sum.Lag.Max
	note := func(format string, args ...any) { run.Invalid = append(run.Invalid, fmt.Sprintf(format, args...)) }
	if run.LagMax > run.LagBudget {
		note("the generator was up to %v behind its schedule, more than %v", run.LagMax.Round(time.Microsecond), run.LagBudget)
	}
	if b.late > max(1, b.all/100) {
		note("the generator was more than %v behind its schedule for %d of %d requests", run.LagBudget/10, b.late, b.all)
	}
	bound := func(of time.Duration) time.Duration { return max(of/10, run.LagBudget/250) }
	if tight := tightest(run.SLOs); tight > 0 && run.LagP99 > bound(tight) {
		note("the generator's lag is %v in the 99th percentile, more than a tenth of an objective of %v", run.LagP99.Round(time.Microsecond), tight)
	}
	if p50 := sum.Lag.P50; sum.TTFT.Count > 0 && p50 > bound(sum.TTFT.P50) {
		note("the generator's lag is %v in the median, more than a tenth of the median TTFT, %v", p50.Round(time.Microsecond), sum.TTFT.P50.Round(time.Microsecond))
	}
	if b.measured == 0 {
		note("no request arrived in the measured phase")
	}
	if b.all > 0 && b.failed == b.all {
		note("every request failed")
	}
	if b.unsent > 0 {
		note("the generator could not send %d of %d requests: it had no file or port left, see ulimit -n", b.unsent, b.all)
	}
	if b.otherwise > b.answered/100 && !b.trial.Form.Capped {
		note("%d of %d answers were not as long as was asked for: the server does not heed ignore_eos, so ask for a cap instead", b.otherwise, b.answered)
	}
	if b.uncounted > 0 {
		run.Notes = append(run.Notes, fmt.Sprintf("%d of %d answers came without usage: their tokens are counted by events", b.uncounted, b.answered))
	}
}

// tightest is the least TTFT or E2E that an objective allows; 0: there is none.
func tightest(slos map[string]record.SLO) (least time.Duration) {
	for _, slo := range slos {
		for _, d := range []time.Duration{slo.TTFT, slo.E2E} {
			if d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	return least
}

// watch tells progress until the run has ended.
func (b *books) watch(ended <-chan struct{}) {
	tick := time.NewTicker(b.trial.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.trial.Progress(b.meter.progress(time.Since(b.begin)))
		case <-ended:
			return
		}
	}
}
