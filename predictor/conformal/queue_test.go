package conformal

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every issued row ends as exactly one of hit, miss, censored, at the right time, whatever the order of events, against a plain list.
func TestEveryRowGetsOneVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			issue    Issue
			at       time.Duration
			ticket   Ticket
			verdict  Verdict
			ended    bool
			overdue  bool
			resolved int
		}
		q := NewQueue(Score(rapid.IntRange(0, 2).Draw(t, "score")))
		var rows []*row
		var buf []Resolution
		now := time.Duration(0)
		check := func(r Resolution, w *row, v Verdict, s Stage) {
			t.Helper()
			if r.Verdict != v || r.Row.Stage != s || r.Row.ID != w.issue.ID || r.Group != w.issue.Group || r.Weight != max(w.issue.Weight, 1) {
				t.Fatalf("at %v: %+v of %+v; want verdict %v, stage %v", now, r, w, v, s)
			}
			if v != NoVerdict {
				w.verdict = v
				w.resolved++
			}
		}
		// advance checks that exactly the rows whose bounds have passed are told.
		advance := func() {
			want := map[uint64]*row{}
			for _, w := range rows {
				if !w.ended && !w.overdue && w.at+w.issue.Bound < now {
					want[w.issue.ID] = w
				}
			}
			buf = q.Advance(buf[:0], now)
			last := time.Duration(0)
			for _, r := range buf {
				w := want[r.Row.ID]
				if w == nil {
					t.Fatalf("at %v: %+v is not overdue", now, r)
				}
				delete(want, r.Row.ID)
				check(r, w, Miss, Overdue)
				w.overdue = true
				if least, _ := q.score.Of(w.issue.Bound.Seconds(), w.issue.Pred, w.issue.Scale); r.Row.Score < least {
					t.Fatalf("overdue with a score of %v, below its bound's %v", r.Row.Score, least)
				}
				if due := w.at + w.issue.Bound; due < last {
					t.Fatalf("overdue rows out of order")
				} else {
					last = due
				}
			}
			if len(want) > 0 {
				t.Fatalf("at %v: not told of %d overdue rows", now, len(want))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"issue": func(t *rapid.T) {
				w := &row{at: now, issue: Issue{
					ID:     uint64(len(rows)),
					Group:  Group{Class: uint16(rapid.IntRange(0, 2).Draw(t, "class"))},
					Weight: float64(rapid.IntRange(0, 3).Draw(t, "weight")),
					Bound:  time.Duration(rapid.IntRange(1, 20).Draw(t, "bound")),
					Pred:   10e-9, Scale: 2e-9,
				}}
				var err error
				if w.ticket, err = q.Issue(w.issue, now); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, w)
			},
			"advance": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 6).Draw(t, "by"))
				advance()
			},
			"end": func(t *rapid.T) {
				if len(rows) == 0 {
					return
				}
				w := rows[rapid.IntRange(0, len(rows)-1).Draw(t, "row")]
				if rapid.Bool().Draw(t, "later") { // without an Advance between: the row may be late and not told
					now += time.Duration(rapid.IntRange(0, 6).Draw(t, "by"))
				}
				how := rapid.IntRange(0, 2).Draw(t, "how")
				r, err := []func(Ticket, time.Duration) (Resolution, error){q.Complete, q.Cancel, q.Leave}[how](w.ticket, now)
				if w.ended {
					if !errors.Is(err, ErrTicket) || r != (Resolution{}) {
						t.Fatalf("a row that has ended ends again: %+v, %v", r, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				w.ended = true
				elapsed := now - w.at
				switch {
				case w.overdue && how == 2:
					check(r, w, NoVerdict, Dropped)
				case w.overdue:
					check(r, w, NoVerdict, Settled)
				case elapsed > w.issue.Bound && how == 2:
					check(r, w, Miss, Overdue)
				case elapsed > w.issue.Bound:
					check(r, w, Miss, Done)
				case how == 0:
					check(r, w, Hit, Done)
				case how == 1:
					check(r, w, Miss, Done)
				default:
					check(r, w, Censored, Dropped)
				}
				want, _ := q.score.Of(max(elapsed, 1).Seconds(), w.issue.Pred, w.issue.Scale)
				if how == 1 {
					want = math.Inf(1)
				}
				if r.Row.Score != want {
					t.Fatalf("score %v after %v, want %v", r.Row.Score, elapsed, want)
				}
			},
			"": func(t *rapid.T) {
				left, late := 0, 0
				next, any := time.Duration(math.MaxInt64), false
				for _, w := range rows {
					if !w.ended {
						left++
						if w.overdue {
							late++
						} else {
							next, any = min(next, w.at+w.issue.Bound), true
						}
					}
					if w.resolved > 1 || w.ended && w.resolved != 1 || w.overdue && w.verdict != Miss {
						t.Fatalf("%d verdicts for %+v", w.resolved, w)
					}
				}
				if q.Len() != left || q.Overdue() != late {
					t.Fatalf("%d rows, %d overdue; want %d, %d", q.Len(), q.Overdue(), left, late)
				}
				if at, ok := q.Next(); ok != any || ok && at != next {
					t.Fatalf("the next bound passes at %v, %v; want %v, %v", at, ok, next, any)
				}
			},
		})
		// In the end nothing is left without a verdict.
		now += 1000
		advance()
		for _, w := range rows {
			if w.resolved != 1 {
				t.Fatalf("%d verdicts for %+v", w.resolved, w)
			}
		}
	})
}

func TestQueueRefusesWhatItCannotScore(t *testing.T) {
	q := NewQueue(Scaled)
	ok := Issue{Bound: time.Second, Pred: 1, Scale: 1}
	for name, spoil := range map[string]func(*Issue){
		"no bound":   func(i *Issue) { i.Bound = 0 },
		"negative":   func(i *Issue) { i.Bound = -1 },
		"prediction": func(i *Issue) { i.Pred = math.NaN() },
		"scale":      func(i *Issue) { i.Scale = 0 },
		"weight":     func(i *Issue) { i.Weight = -1 },
		"infinite":   func(i *Issue) { i.Weight = math.Inf(1) },
	} {
		i := ok
		spoil(&i)
		if _, err := q.Issue(i, 0); !errors.Is(err, ErrValue) || q.Len() != 0 {
			t.Errorf("%s: %v, %d rows", name, err, q.Len())
		}
	}
	if _, err := q.Complete(0, 0); !errors.Is(err, ErrTicket) {
		t.Errorf("the zero ticket: %v", err)
	}
	if _, err := q.Complete(1<<40, 0); !errors.Is(err, ErrTicket) {
		t.Errorf("a ticket never issued: %v", err)
	}
}

// Rows that leave from the middle of the queue do not upset the order in which the others become overdue.
func TestOverdueInOrderWhateverLeaves(t *testing.T) {
	rng := rand.New(rand.NewPCG(28, 29))
	for range 300 {
		q := NewQueue(Ratio)
		var tickets []Ticket
		for i := range 60 {
			tickets = append(tickets, must(q.Issue(Issue{ID: uint64(i), Bound: time.Duration(1 + rng.IntN(1000)), Pred: 1}, 0)))
		}
		for _, i := range rng.Perm(60)[:40] {
			must(q.Complete(tickets[i], 0))
			for k := range q.due {
				if q.less(k, 0) {
					t.Fatal("the first is not the first")
				}
			}
		}
		last := time.Duration(0)
		for q.Len() > q.Overdue() {
			at, _ := q.Next()
			if at < last {
				t.Fatalf("a bound that passes at %v comes after one of %v", at, last)
			}
			last = at
			if got := q.Advance(nil, at+1); len(got) == 0 {
				t.Fatalf("nothing is overdue after %v", at)
			}
		}
	}
}

func TestTimeDoesNotGoBack(t *testing.T) {
	q := NewQueue(Ratio)
	a := must(q.Issue(Issue{ID: 1, Bound: time.Second, Pred: 1}, 10*time.Second))
	r := must(q.Complete(a, 5*time.Second))
	if r.Verdict != Hit || math.IsInf(r.Row.Score, 0) {
		t.Errorf("a row that ends before it began: %+v", r)
	}
	must(q.Issue(Issue{ID: 2, Bound: math.MaxInt64, Pred: 1}, 10*time.Second))
	if got := q.Advance(nil, math.MaxInt64-1); len(got) != 0 {
		t.Errorf("a bound beyond the end of time has passed: %+v", got)
	}
}

func TestQueueDoesNotAllocate(t *testing.T) {
	q := NewQueue(Ratio)
	var tickets [64]Ticket
	now := time.Duration(0)
	for i := range tickets {
		tickets[i] = must(q.Issue(Issue{Bound: time.Second, Pred: 1}, now))
	}
	buf := make([]Resolution, 0, 128)
	i := 0
	n := testing.AllocsPerRun(1000, func() {
		now += 20 * time.Millisecond
		buf = q.Advance(buf[:0], now)
		k := i % len(tickets)
		_, e1 := q.Complete(tickets[k], now)
		var e2 error
		tickets[k], e2 = q.Issue(Issue{Bound: time.Second + time.Duration(i%7)*100*time.Millisecond, Pred: 1}, now)
		if err := errors.Join(e1, e2); err != nil {
			t.Error(err)
		}
		i++
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
