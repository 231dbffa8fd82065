package batch_test

import (
	"math"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

func TestFit(t *testing.T) {
	c := batch.Config{PageTokens: 16, KVPages: 8, ContextTokens: 100} // 100 tokens at most
	for _, x := range []struct{ prompt, resume, maxTokens, maxNew, pages int }{
		{10, 0, 20, 20, 2},
		{10, 5, 20, 15, 2},
		{10, 20, 20, 0, 2},
		{90, 0, 20, 10, 7},
		{90, 10, 20, 0, 7},
		{90, 15, 20, 0, 7}, // another worker had more room
	} {
		if maxNew, pages := c.Fit(x.prompt, x.resume, x.maxTokens); maxNew != x.maxNew || pages != x.pages {
			t.Errorf("%+v: %d new tokens, %d pages", x, maxNew, pages)
		}
	}
}

func TestPromise(t *testing.T) {
	s := batch.Sequence{Priority: 9, Deadline: 9, FirstDeadline: 9}
	for _, x := range []struct {
		class              schema.Class
		arrived, left      time.Duration
		priority, deadline int
	}{
		{"", 5, 0, 0, 0},
		{schema.BestEffort, 5, 7, 0, 12},
		{schema.Guaranteed, 5, 7, 1, 12},
		{schema.Guaranteed, 5, -9, 1, 1}, // late already, but a deadline
		{schema.Guaranteed, 5, math.MaxInt64, 1, math.MaxInt64},
	} {
		s.Promise(batch.Promise{Class: x.class, OnDeadline: schema.OnDeadlineContinue, Left: deadline.Left{E2E: x.left}}, x.arrived)
		if s.Priority != x.priority || int(s.Deadline) != x.deadline || s.FirstDeadline != 0 || s.OnDeadline != schema.OnDeadlineContinue {
			t.Errorf("%+v: %+v", x, s)
		}
		s.Promise(batch.Promise{Left: deadline.Left{TTFT: x.left}}, x.arrived)
		if s.Priority != 0 || s.Deadline != 0 || int(s.FirstDeadline) != x.deadline || s.OnDeadline != "" {
			t.Errorf("%+v of the first token: %+v", x, s)
		}
	}
}
