package worker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestHeartBeatsAtIntervalsAndAfterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan struct{}, 1)
		start := time.Now()
		var beats []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			heart(ctx, 250*time.Millisecond, 5*time.Millisecond, changed, func() bool {
				beats = append(beats, time.Since(start))
				return true
			})
		}()
		at := func(d time.Duration) {
			time.Sleep(d - time.Since(start))
			poke(changed)
		}
		at(100 * time.Millisecond)
		at(101 * time.Millisecond) // both of these within the gap: told once, at its end
		at(103 * time.Millisecond)
		at(700 * time.Millisecond)
		time.Sleep(300*time.Millisecond - time.Millisecond)
		cancel()
		<-done
		ms := func(n ...int) (d []time.Duration) {
			for _, n := range n {
				d = append(d, time.Duration(n)*time.Millisecond)
			}
			return
		}
		if want := ms(0, 100, 105, 355, 605, 700, 950); !slices.Equal(beats, want) {
			t.Fatalf("beats at %v, want %v", beats, want)
		}
	})
}

func TestHeartStopsWithItsBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		heart(t.Context(), time.Second, 0, nil, func() bool { n++; return n < 3 })
		if n != 3 {
			t.Fatalf("%d beats", n)
		}
	})
}
