package trainer

import (
	"fmt"
	"math"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
)

// Deployed is an artifact as an ingress begins with it: its model, and the margins that its calibration says before anything more was
// seen. It does not change, and is safe for concurrent use.
type Deployed struct {
	artifact *artifact.Artifact
	alpha    float64
	groups   *conformal.Groups
	classes  bool // groups tell classes apart; else all are of class 0
	physics  conformal.Arm
}

// Deploy takes an artifact, which must be valid: ErrFit.
func Deploy(a *artifact.Artifact) (*Deployed, error) {
	c := &a.Calibration
	groups, err := conformal.ImportGroups(c.Supported, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	physics, err := conformal.Import(c.Physics)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	d := &Deployed{artifact: a, alpha: c.Supported.All.Alpha, groups: groups, physics: physics}
	for i := range c.Supported.Groups {
		d.classes = d.classes || c.Supported.Groups[i].Group.Class != 0
	}
	return d, nil
}

// Residual is what the model says log(latency / Predicted) is; 0 where what it learned from does not support it.
func (d *Deployed) Residual(k *Known) (residual float64, supported bool) {
	m := d.artifact.Model
	if len(k.Features) != m.Features() {
		return 0, false
	}
	if ok, _ := m.Supported(k.Features, d.artifact.Calibration.MinSupport); !ok {
		return 0, false
	}
	return m.Predict(k.Features), true
}

// Bound implements Bounder; ok is false for another alpha than that of the calibration. An artifact whose groups are all of class 0 does
// not tell classes apart.
func (d *Deployed) Bound(k *Known, alpha float64) (seconds float64, ok bool) {
	if math.Abs(alpha-d.alpha) > 1e-9 {
		return 0, false
	}
	residual, supported := d.Residual(k)
	var q float64
	if supported {
		g := conformal.Group{Decile: d.artifact.Calibration.Deciles.Of(k.Load)}
		if d.classes {
			g.Class = k.Class
		}
		q, _, ok = d.groups.Quantile(g)
	} else {
		q, ok = d.physics.Quantile()
	}
	return scale(k.Predicted, residual+q, ok)
}
