package calibrate

import "github.com/cadence-slo/cadence/predictor/profile/fit"

// Step is one step of an engine: what was in it, and how long the engine took.
type Step = fit.Step

// Residual is the error on held-out steps of one kind.
type Residual = fit.Residual

// ErrFit is returned for steps that no profile can be made of.
var ErrFit = fit.ErrFit
