package conformal

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrTicket says that a ticket is not that of a row in the queue: it has ended, or was never issued.
var ErrTicket = errors.New("conformal: no such row in the queue")

// Verdict says what became of an issued bound. It is given once per row.
type Verdict uint8

const (
	// NoVerdict: it was given before, when the row became overdue.
	NoVerdict Verdict = iota
	// Hit: the row completed within its bound.
	Hit
	// Miss: the bound passed before the row completed, or we cancelled it or let its time to live run out.
	Miss
	// Censored: the client left before the bound had passed.
	Censored
)

// String is the verdict's name, in lower case.
func (v Verdict) String() string {
	switch v {
	case NoVerdict:
		return "none"
	case Hit:
		return "hit"
	case Miss:
		return "miss"
	case Censored:
		return "censored"
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Issue is a bound given to a row.
type Issue struct {
	ID    uint64 // of the caller, handed back in Row
	Group Group
	// Weight is 1/propensity of the row's being observed, > 0; 0 is 1.
	Weight float64
	// Bound on the time from issue to completion, > 0.
	Bound time.Duration
	// Pred and Scale in seconds are what the row is scored with; see Score.Of.
	Pred, Scale float64
}

// Ticket names a row in a Queue. The zero Ticket names none.
type Ticket uint64

// Resolution is what has become known of a row: Row is for an Arm, Verdict for Coverage.
type Resolution struct {
	Row     Row
	Group   Group
	Weight  float64 // as issued, 1 for 0
	Verdict Verdict
}

// Queue holds the rows whose bounds are not resolved. A row is resolved at min(completion, its bound): a miss is known when the bound
// passes, so that slow rows count in time and quick ones do not dominate. Of an overdue row a second Resolution, without a verdict,
// follows with its score when it ends.
//
//	issued ──► hit | censored | miss (ended late or cancelled by us)
//	   └─────► miss, overdue ──► settled
//
// Times are durations since any fixed moment. Time that goes back is taken as the latest one seen. In the steady state nothing
// is allocated.
type Queue struct {
	score Score
	now   time.Duration
	rows  []issued
	free  []uint32 // places in rows
	due   []uint32 // places in rows, a heap by due time, then place
	late  int      // overdue rows
}

type issued struct {
	Issue
	at, due time.Duration
	gen     uint32 // of the ticket; odd while the place is taken
	heap    int32  // place in Queue.due, −1 once overdue
}

// NewQueue makes an empty queue that scores rows with s.
func NewQueue(s Score) *Queue { return &Queue{score: s} }

// Len is the number of rows issued that have not ended, overdue ones among them.
func (q *Queue) Len() int { return len(q.due) + q.late }

// Overdue is the number of rows that are known to be misses and have not ended.
func (q *Queue) Overdue() int { return q.late }

// Next is when the next bound passes; ok is false if no row waits for that.
func (q *Queue) Next() (at time.Duration, ok bool) {
	if len(q.due) == 0 {
		return 0, false
	}
	return q.rows[q.due[0]].due, true
}

// Issue adds a row whose bound runs from now. ErrValue for a bound or prediction that cannot be scored.
func (q *Queue) Issue(i Issue, now time.Duration) (Ticket, error) {
	if i.Weight == 0 {
		i.Weight = 1
	}
	if i.Bound <= 0 || !(i.Weight > 0) || math.IsInf(i.Weight, 1) {
		return 0, fmt.Errorf("%w: bound %v, weight %v", ErrValue, i.Bound, i.Weight)
	}
	if _, err := q.score.Of(1, i.Pred, i.Scale); err != nil {
		return 0, fmt.Errorf("%w: prediction %v, scale %v", err, i.Pred, i.Scale)
	}
	q.advance(now)
	var at uint32
	if n := len(q.free); n > 0 {
		at, q.free = q.free[n-1], q.free[:n-1]
	} else {
		at = uint32(len(q.rows))
		q.rows = append(q.rows, issued{})
	}
	r := &q.rows[at]
	r.Issue, r.at, r.due = i, q.now, q.now+i.Bound
	if r.due < q.now {
		r.due = math.MaxInt64
	}
	r.gen++
	q.push(at)
	return Ticket(uint64(r.gen)<<32 | uint64(at)), nil
}

// Advance appends the rows whose bound lies before now: misses, overdue. A row that ends exactly at its bound is a hit.
func (q *Queue) Advance(dst []Resolution, now time.Duration) []Resolution {
	q.advance(now)
	for len(q.due) > 0 && q.rows[q.due[0]].due < q.now {
		r := &q.rows[q.due[0]]
		q.remove(0)
		q.late++
		dst = append(dst, q.resolve(r, Overdue, Miss))
	}
	return dst
}

// Complete ends a row that has completed. ErrTicket.
func (q *Queue) Complete(t Ticket, now time.Duration) (Resolution, error) {
	return q.end(t, now, func(r *issued) Resolution { return q.resolve(r, Done, Hit) })
}

// Cancel ends a row that we cancelled, or whose time to live ran out: a miss, with a score of +Inf. ErrTicket.
func (q *Queue) Cancel(t Ticket, now time.Duration) (Resolution, error) {
	res, err := q.end(t, now, func(r *issued) Resolution { return q.resolve(r, Done, Miss) })
	if err == nil {
		res.Row.Score = math.Inf(1)
	}
	return res, err
}

// Leave ends a row whose client cancelled it. It is censored, unless the bound had passed by then: then it is a miss whose score
// stays the lower bound that it is. ErrTicket.
func (q *Queue) Leave(t Ticket, now time.Duration) (Resolution, error) {
	res, err := q.end(t, now, func(r *issued) Resolution { return q.resolve(r, Dropped, Censored) })
	switch {
	case err != nil:
	case res.Row.Stage == Settled:
		res.Row.Stage = Dropped
	case res.Verdict == Miss:
		res.Row.Stage = Overdue
	}
	return res, err
}

// end resolves a row in time by intime; a late one is a miss whatever the reason.
func (q *Queue) end(t Ticket, now time.Duration, intime func(*issued) Resolution) (Resolution, error) {
	at := uint32(t)
	if uint64(at) >= uint64(len(q.rows)) || q.rows[at].gen != uint32(t>>32) || q.rows[at].gen%2 == 0 {
		return Resolution{}, ErrTicket
	}
	q.advance(now)
	r := &q.rows[at]
	var res Resolution
	switch {
	case r.heap < 0:
		q.late--
		res = q.resolve(r, Settled, NoVerdict)
	case r.due < q.now:
		q.remove(int(r.heap))
		res = q.resolve(r, Done, Miss)
	default:
		q.remove(int(r.heap))
		res = intime(r)
	}
	r.gen++
	q.free = append(q.free, at)
	return res, nil
}

func (q *Queue) resolve(r *issued, s Stage, v Verdict) Resolution {
	// A row may end in the instant in which it was issued; a ratio needs some time.
	y := max(q.now-r.at, 1).Seconds()
	score, _ := q.score.Of(y, r.Pred, r.Scale) // Issue has checked the rest
	return Resolution{Row: Row{ID: r.ID, Score: score, Stage: s}, Group: r.Group, Weight: r.Weight, Verdict: v}
}

func (q *Queue) advance(now time.Duration) { q.now = max(q.now, now) }

func (q *Queue) less(i, j int) bool {
	a, b := q.due[i], q.due[j]
	if x, y := q.rows[a].due, q.rows[b].due; x != y {
		return x < y
	}
	return a < b
}

func (q *Queue) swap(i, j int) {
	q.due[i], q.due[j] = q.due[j], q.due[i]
	q.rows[q.due[i]].heap, q.rows[q.due[j]].heap = int32(i), int32(j)
}

func (q *Queue) push(at uint32) {
	q.due = append(q.due, at)
	i := len(q.due) - 1
	q.rows[at].heap = int32(i)
	q.up(i)
}

func (q *Queue) remove(i int) {
	last := len(q.due) - 1
	q.swap(i, last)
	q.rows[q.due[last]].heap = -1
	q.due = q.due[:last]
	if i < last {
		q.down(i)
		q.up(i)
	}
}

func (q *Queue) up(i int) {
	for i > 0 && q.less(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *Queue) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(q.due) {
			return
		}
		if c+1 < len(q.due) && q.less(c+1, c) {
			c++
		}
		if !q.less(c, i) {
			return
		}
		q.swap(i, c)
		i = c
	}
}
