package services

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// journal records what happened in which order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, s)
}

// all are the lines so far.
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) component(name string, stopTakes time.Duration) Component {
	return Component{Name: name, StopWithin: time.Second, Run: func(ctx context.Context, ready func()) error {
		j.add("start " + name)
		ready()
		<-ctx.Done()
		time.Sleep(stopTakes)
		j.add("stop " + name)
		return nil
	}}
}

func TestGroupStartsInOrderAndStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithCancel(t.Context())
		err := RunGroup(ctx, slog.New(slog.DiscardHandler), []Component{j.component("a", 0), j.component("b", 500*time.Millisecond)}, cancel)
		if want := []string{"start a", "start b", "stop b", "stop a"}; err != nil || !slices.Equal(j.all(), want) {
			t.Fatalf("%v, %v", j.all(), err)
		}
	})
}

func TestGroupStopsWhenAComponentFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		broken := errors.New("broken")
		err := RunGroup(t.Context(), slog.New(slog.DiscardHandler), []Component{
			j.component("a", 0),
			{Name: "b", StopWithin: time.Second, Run: func(_ context.Context, ready func()) error {
				ready()
				time.Sleep(time.Minute)
				return broken
			}},
			j.component("c", 0),
		}, nil)
		if want := []string{"start a", "start c", "stop c", "stop a"}; !errors.Is(err, broken) || !slices.Equal(j.all(), want) {
			t.Fatalf("%v, %v", j.all(), err)
		}
	})
}

func TestGroupDoesNotStartAfterAFailure(t *testing.T) {
	var j journal
	broken := errors.New("broken")
	err := RunGroup(t.Context(), slog.New(slog.DiscardHandler), []Component{
		j.component("a", 0),
		{Name: "b", StopWithin: time.Second, Run: func(context.Context, func()) error { return broken }},
		j.component("c", 0),
	}, nil)
	if want := []string{"start a", "stop a"}; !errors.Is(err, broken) || !slices.Equal(j.all(), want) {
		t.Fatalf("%v, %v", j.all(), err)
	}
}

func TestGroupGivesUpOnAComponentThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithCancel(t.Context())
		err := RunGroup(ctx, slog.New(slog.DiscardHandler), []Component{j.component("a", 0), j.component("b", time.Hour)}, cancel)
		if !errors.Is(err, ErrStopTimeout) || !slices.Contains(j.all(), "stop a") {
			t.Fatalf("%v, %v", j.all(), err)
		}
		time.Sleep(2 * time.Hour) // in the bubble's time: b ends too
	})
}
