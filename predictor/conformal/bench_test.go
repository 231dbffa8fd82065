package conformal

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// go test -run '^$' -bench . -benchmem ./predictor/conformal

func benchScores(n int) []float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	s := make([]float64, n)
	for i := range s {
		s[i] = rng.NormFloat64()
	}
	return s
}

func BenchmarkObserve(b *testing.B) {
	scores := benchScores(1 << 14)
	for _, a := range arms(0.1, DefaultWindow, normalRows(rand.New(rand.NewPCG(1, 2)), DefaultWindow, 0, 1), 1) {
		b.Run(a.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := a.Observe(Row{ID: uint64(i), Score: scores[i&(1<<14-1)]}); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkQuantile(b *testing.B) {
	var sink float64
	for _, a := range arms(0.1, DefaultWindow, normalRows(rand.New(rand.NewPCG(1, 2)), DefaultWindow, 0, 1), 1) {
		b.Run(a.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q, _ := a.Quantile()
				sink += q
			}
		})
	}
	scores := benchScores(10_000)
	rows := make([]WeightedRow, len(scores))
	for i, s := range scores {
		rows[i] = WeightedRow{s, 1 + float64(i%7)}
	}
	split, weighted := must(NewSplit(scores)), must(NewWeighted(rows))
	b.Run("split", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			q, _ := split.Quantile(0.1)
			sink += q
		}
	})
	b.Run("weighted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			q, _ := weighted.Quantile(0.1, 2)
			sink += q
		}
	})
	if sink == 0 {
		b.Fatal("no quantile")
	}
}

// One row through the queue: issued, the clock moved, ended.
func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{64, 4096} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			q := NewQueue(Ratio)
			tickets := make([]Ticket, n)
			for i := range tickets {
				tickets[i] = must(q.Issue(Issue{Bound: time.Second, Pred: 1}, 0))
			}
			buf := make([]Resolution, 0, n)
			now, i := time.Duration(0), 0
			b.ReportAllocs()
			for b.Loop() {
				now += time.Second / time.Duration(n)
				buf = q.Advance(buf[:0], now)
				k := i % n
				if _, err := q.Complete(tickets[k], now); err != nil {
					b.Fatal(err)
				}
				tickets[k] = must(q.Issue(Issue{Bound: time.Second + time.Duration(i%7)*100*time.Millisecond, Pred: 1}, now))
				i++
			}
		})
	}
}

func BenchmarkCUSUM(b *testing.B) {
	c := must(NewCUSUM(0.1, 2, 10_000))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.Observe(i%10 == 0)
		i++
	}
}
