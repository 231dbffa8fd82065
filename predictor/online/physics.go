package online

import (
	"time"

	"github.com/cadence-slo/cadence/predictor"
)

// Forecast is the simulation of the last Foresee; lent until the next.
func (p *Predictor) Forecast() *predictor.Forecast { return &p.forecast }

// Physics is the E2E latency that the last Foresee, which was of s, simulated at the median length, without the residual.
func (p *Predictor) Physics(s *predictor.Sequence) time.Duration {
	_, at := p.forecast.Median(s, p.lengths)
	return s.Age + nanoseconds(at)
}
