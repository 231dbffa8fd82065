package service

import (
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/trainer"
)

// Report is what a training came to.
type Report struct {
	Pool        string `json:"pool"`
	Source      string `json:"source"`
	Fingerprint string `json:"fingerprint"`
	Profile     string `json:"profile"`
	// Artifact is the candidate's SHA-256, Champion that of the running model, empty if there was none that fits the engine.
	Artifact string `json:"artifact"`
	Bytes    int    `json:"bytes"`
	Champion string `json:"champion,omitempty"`
	// Swap says that the candidate is to be the pool's model, Published that it is.
	Swap      bool           `json:"swap"`
	Published bool           `json:"published"`
	Reason    trainer.Reason `json:"reason"`
	Message   string         `json:"message"`

	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
	Rounds   int            `json:"rounds"`
	Rows     int            `json:"rows"` // of the engine
	Censored int            `json:"censored"`
	Skipped  map[string]int `json:"skipped,omitempty"` // traces that are no rows, by reason
	// Rows that were kept, by what they were for; Compared are those of Test that the running model has not learned from.
	Fit       int `json:"fit"`
	Calibrate int `json:"calibrate"`
	Test      int `json:"test"`
	Compared  int `json:"compared"`

	Level float64 `json:"level"`
	// Coverage of the bounds on Compared, with its interval clustered by run, and the median bound in seconds.
	Candidate Coverage  `json:"candidate"`
	Running   *Coverage `json:"running,omitempty"`
	// Width is the geometric mean of the candidate's bounds by the running model's.
	Width float64 `json:"width"`
	// Error and PhysicsError are the median |log(latency / prediction)| on Test, with the model and without.
	Error        float64            `json:"error"`
	PhysicsError float64            `json:"physics_error"`
	Trees        int                `json:"trees"`
	Strata       []artifact.Stratum `json:"strata"`
}

// Coverage is what bounds were worth.
type Coverage struct {
	Kept        float64 `json:"kept"` // share of the bounds; of requests whose client left none was
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	Rows        int     `json:"rows"`
	Unbounded   int     `json:"unbounded"`
	MedianBound float64 `json:"median_bound_s"`
}

func coverage(r *trainer.Report) Coverage {
	kept, _ := r.All.Coverage.Range()
	return Coverage{Kept: kept, Low: r.All.Low, High: r.All.High, Rows: r.All.Coverage.Rows(), Unbounded: r.Unbounded, MedianBound: r.All.MedianBound}
}

// message says in a line why the outcome is what it is.
func message(t *trainer.Training, rule *trainer.Rule) string {
	o := &t.Outcome
	c := coverage(&o.Challenger)
	s := fmt.Sprintf("coverage %.3f of %d bounds at level %.3f", c.Kept, c.Rows, 1-rule.Alpha)
	if r := coverage(&o.Champion); r.Rows > 0 {
		s += fmt.Sprintf(", the running model's %.3f; bounds %.3f times as wide", r.Kept, o.Width)
	}
	switch o.Reason {
	case trainer.TooFewRows:
		s = fmt.Sprintf("%d held-out requests that neither model has learned from, it takes %d", t.Compared, rule.MinRows)
	case trainer.InGroup:
		s += fmt.Sprintf("; in class %d, decile %d it falls short", o.Group.Class, o.Group.Decile)
	case trainer.LessBounded:
		s += fmt.Sprintf("; no bound for %d requests, the running model's for %d", o.Challenger.Unbounded, o.Champion.Unbounded)
	}
	return s
}
