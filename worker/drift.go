package worker

import (
	"math"
	"time"
)

const (
	// driftOver is the busy time over which a step's weight falls to 1/e.
	driftOver = 2 * time.Second
	// driftSteps and driftTime are what must have been seen before drift says anything.
	driftSteps = 8
	driftTime  = 50 * time.Millisecond
	// driftJump bounds how far off one step may be from what was usual: beyond, the machine did something else, or it is another
	// speed, which the next steps will confirm.
	driftJump = 2
)

// drift follows by how much steps take longer than a profile says: a ratio of sums, since it is sums of steps that are predicted
// with it, in which a step's weight fades with the busy time after it. The zero value has seen nothing.
type drift struct {
	took, said float64 // seconds, faded
	seen       time.Duration
	steps      int
}

// observe adds a step. What is not above 0 tells nothing.
func (d *drift) observe(took, said time.Duration) {
	if took <= 0 || said <= 0 {
		return
	}
	t, s := took.Seconds(), said.Seconds()
	if d.steps >= driftSteps {
		usual := s * d.took / d.said
		t = min(max(t, usual/driftJump), usual*driftJump)
	}
	fade := math.Exp(-t / driftOver.Seconds())
	d.took, d.said = d.took*fade+t, d.said*fade+s
	d.seen += took
	d.steps++
}

// slow is the ratio, > 0; 0: not known yet.
func (d *drift) slow() float64 {
	if d.steps < driftSteps || d.seen < driftTime {
		return 0
	}
	return d.took / d.said
}
