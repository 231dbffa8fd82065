package conformal

import (
	"fmt"
	"math"
	"slices"
)

// kept is a row in a window.
type kept struct {
	id     uint64
	score  float64
	open   bool // score is a lower bound so far
	judged bool // it has moved the level already
}

// window holds the most recent rows, in order of arrival and their scores in order of size. It does not allocate once it is made.
type window struct {
	ring   []kept // len is the size
	head   int    // of the oldest
	n      int
	open   int // rows that are open
	sorted []float64
}

func newWindow(size int, rows []Row) (window, error) {
	if size < 1 {
		return window{}, fmt.Errorf("%w: window of %d rows", ErrValue, size)
	}
	w := window{ring: make([]kept, size), sorted: make([]float64, 0, size)}
	for _, r := range rows {
		if _, err := w.take(r, 0, false); err != nil {
			return window{}, err
		}
	}
	return w, nil
}

// take stores what is known of r, and says whether it is to be judged now against the quantile q (ok: there is one). A row is judged
// once: when its score is final, or as soon as its lower bound exceeds q.
func (w *window) take(r Row, q float64, ok bool) (judge bool, err error) {
	if err := checkScore(r.Score); err != nil {
		return false, fmt.Errorf("%w: score of row %d is %v", err, r.ID, r.Score)
	}
	switch r.Stage {
	case Done:
		w.push(kept{id: r.ID, score: r.Score, judged: true})
		return true, nil
	case Overdue:
		judge = ok && r.Score > q
		w.push(kept{id: r.ID, score: r.Score, open: true, judged: judge})
		return judge, nil
	case Settled:
		i := w.find(r.ID)
		if i < 0 {
			return false, nil // all were open when it left the window
		}
		e := &w.ring[i]
		w.replace(e.score, r.Score)
		judge = !e.judged
		*e = kept{id: r.ID, score: r.Score, judged: true}
		w.open--
		return judge, nil
	default:
		if i := w.find(r.ID); i >= 0 { // no more will be known of it than the lower bound
			w.ring[i].open = false
			w.open--
		}
		return false, nil
	}
}

// push takes the place of the oldest row that has ended. Rows that are still open stay, as the newest but for e: one that left unjudged
// would be a miss that nobody learned from. Only where all are open does the oldest go.
func (w *window) push(e kept) {
	if w.n == len(w.ring) {
		for k := 0; k < w.n && w.open < w.n && w.ring[w.head].open; k++ {
			w.head = (w.head + 1) % len(w.ring)
		}
		old := &w.ring[w.head]
		if old.open {
			w.open--
		}
		w.replace(old.score, e.score)
		*old = e
		w.head = (w.head + 1) % len(w.ring)
	} else {
		w.ring[(w.head+w.n)%len(w.ring)] = e
		w.n++
		i, _ := slices.BinarySearch(w.sorted, e.score)
		w.sorted = slices.Insert(w.sorted, i, e.score)
	}
	if e.open {
		w.open++
	}
}

// replace moves only what lies between the two places.
func (w *window) replace(old, score float64) {
	i, _ := slices.BinarySearch(w.sorted, old)
	j, _ := slices.BinarySearch(w.sorted, score)
	if j > i {
		j--
		copy(w.sorted[i:j], w.sorted[i+1:j+1])
	} else {
		copy(w.sorted[j+1:i+1], w.sorted[j:i])
	}
	w.sorted[j] = score
}

// find is the place in the ring of the newest open row with this id, −1 if there is none.
func (w *window) find(id uint64) int {
	if w.open == 0 {
		return -1
	}
	for k := w.n - 1; k >= 0; k-- {
		i := (w.head + k) % len(w.ring)
		if w.ring[i].open && w.ring[i].id == id {
			return i
		}
	}
	return -1
}

// at is the quantile at a working level, which may lie outside (0, 1): at and below 0 nothing bounds, from 1 on the smallest score does.
func (w *window) at(level float64) (float64, bool) {
	if !(level > 0) || w.n == 0 {
		return 0, false
	}
	k := 1
	if level < 1 {
		var ok bool
		if k, ok = Rank(w.n, level); !ok {
			return 0, false
		}
	}
	q := w.sorted[max(k, 1)-1]
	return q, !math.IsInf(q, 1)
}

// split is the quantile at alpha if rows that are open turn out worse than any bound.
func (w *window) split(alpha float64) (float64, bool) {
	k, ok := Rank(w.n, alpha)
	if !ok || k > w.n-w.open {
		return 0, false
	}
	if w.open == 0 {
		return w.at(alpha)
	}
	scores := make([]float64, 0, w.n)
	w.each(func(i int) {
		if e := &w.ring[i]; !e.open {
			scores = append(scores, e.score)
		}
	})
	slices.Sort(scores)
	q := scores[max(k, 1)-1]
	return q, !math.IsInf(q, 1)
}

// pvalue is the share of rows, r among them, whose score is at least r's: the lowest level whose quantile does not cover r (β of Gibbs
// and Candès 2024, §2). Of a row that settles, its own lower bound is left out.
func (w *window) pvalue(r Row) float64 {
	below, _ := slices.BinarySearch(w.sorted, r.Score)
	n := w.n
	if r.Stage == Settled {
		if i := w.find(r.ID); i >= 0 {
			n--
			if w.ring[i].score < r.Score {
				below--
			}
		}
	}
	return float64(n+1-below) / float64(n+1)
}

// rescore leaves the window as it was if a new score is not finite.
func (w *window) rescore(score func(Row) float64) error {
	ring := slices.Clone(w.ring)
	w.each(func(i int) {
		if e := &ring[i]; !math.IsInf(e.score, 1) {
			e.score = score(e.row())
		}
	})
	for i := range ring {
		if s := ring[i].score; math.IsNaN(s) || math.IsInf(s, 0) && s != w.ring[i].score {
			return fmt.Errorf("%w: new score of row %d is %v", ErrValue, ring[i].id, s)
		}
	}
	w.ring = ring
	w.sorted = w.sorted[:0]
	w.each(func(i int) { w.sorted = append(w.sorted, ring[i].score) })
	slices.Sort(w.sorted)
	return nil
}

// largest is the largest finite score, -Inf if there is none.
func (w *window) largest() float64 {
	n, _ := slices.BinarySearch(w.sorted, math.Inf(1))
	if n == 0 {
		return math.Inf(-1)
	}
	return w.sorted[n-1]
}

// finiteAt is the empirical 1−α quantile of the finite scores, the largest if they are few.
func (w *window) finiteAt(alpha float64) (float64, bool) {
	n, _ := slices.BinarySearch(w.sorted, math.Inf(1))
	if n == 0 {
		return 0, false
	}
	k, _ := Rank(n, alpha)
	return w.sorted[min(max(k, 1), n)-1], true
}

// each calls f with the places in the ring, oldest first.
func (w *window) each(f func(i int)) {
	for k := range w.n {
		f((w.head + k) % len(w.ring))
	}
}

func (e *kept) row() Row {
	r := Row{ID: e.id, Score: e.score}
	if e.open {
		r.Stage = Overdue
	}
	return r
}
