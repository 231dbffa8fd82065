package load

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"
)

// Plan is one run.
type Plan struct {
	Client *Client
	// Arrivals are offsets from the start of the run, ascending.
	Arrivals iter.Seq[time.Duration]
	// Next returns the request of the i-th arrival. It is called on the schedule's own goroutine, while it waits
	// for that arrival: it should be quick.
	Next func(i int) *Request
	// Sent, if not nil, is called on the schedule's goroutine as a request is handed to its own, with how late that is. It
	// should be quick.
	Sent func(i int, lag time.Duration)
	// Length is how long requests arrive; less than the last arrival is as long as to it.
	Length time.Duration
	// Drain is how long after Length outstanding requests may go on; then their connections are closed. 0: at once.
	Drain time.Duration
	// Sink, if not nil, gets every record as it is complete, on the request's own goroutine.
	Sink func(*Record)
	// Interval is the length of the rows in Summary.Intervals; 0 has none.
	Interval time.Duration
}

// Run sends a plan's requests at their times and returns when all are answered. No request waits for another: each
// has a goroutine of its own and takes an idle connection or opens one. The end of ctx stops the schedule and closes
// the connections of outstanding requests; what came until then is still summed up, beside ctx's error.
func Run(ctx context.Context, p Plan) (*Summary, error) {
	clock, err := newAlarm()
	if err != nil {
		return nil, err
	}
	defer clock.close()
	outstanding, cut := context.WithCancel(ctx)
	defer cut()
	var (
		wg    sync.WaitGroup
		total = NewCollector(p.Interval)
		start = time.Now()
		last  time.Duration
		i     int
	)
	for at := range p.Arrivals {
		req := p.Next(i)
		if req == nil {
			err = fmt.Errorf("%w: no request for arrival %d", ErrConfig, i)
			cut()
			break
		}
		intended := start.Add(at)
		if err = clock.until(ctx, intended); err != nil {
			break
		}
		if p.Sent != nil {
			p.Sent(i, time.Since(intended))
		}
		rec := &Record{Index: i, Intended: at}
		wg.Go(func() {
			p.Client.do(outstanding, req, intended, rec)
			total.Add(rec)
			if p.Sink != nil {
				p.Sink(rec)
			}
		})
		last = at
		i++
	}
	late := time.AfterFunc(time.Until(start.Add(max(last, p.Length)+p.Drain)), cut)
	defer late.Stop()
	wg.Wait()
	return total.Summary(time.Since(start)), err
}
