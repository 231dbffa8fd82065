package trainer

import (
	"fmt"
	"math"

	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/sajari/regression"
)

// Baseline is a simple prediction with a margin that is calibrated as a model's is: coverage does not tell them apart, only how wide the
// bounds are. It does not change, and is safe for concurrent use.
type Baseline struct {
	predict func(*Known) float64 // seconds, > 0
	scores  *conformal.Weighted  // log(latency / predict)
}

// Bound implements Bounder.
func (b *Baseline) Bound(k *Known, alpha float64) (seconds float64, ok bool) {
	q, ok := quantile(alpha, k.Weight, b.scores)
	return scale(b.predict(k), q, ok)
}

// scale is a prediction moved by a log ratio.
func scale(predicted, by float64, ok bool) (seconds float64, bounded bool) {
	const most = 1e12
	if !ok {
		return 0, false
	}
	return min(max(predicted*math.Exp(by), 1e-12), most), true
}

// calibrated calibrates on rows. Of a row whose client left the score is a lower bound, as in Fit.
func calibrated(rows []Row, predict func(*Known) float64) (*Baseline, error) {
	scores := make([]conformal.WeightedRow, len(rows))
	for i := range rows {
		r := &rows[i]
		scores[i] = conformal.WeightedRow{Score: r.Label + math.Log(r.Predicted/predict(&r.Known)), Weight: r.Weight}
	}
	w, err := conformal.NewWeighted(scores)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFit, err)
	}
	return &Baseline{predict, w}, nil
}

// Constant is the same bound for all, a quantile of latencies. ErrRow.
func Constant(calibrate []Row) (*Baseline, error) {
	if err := check(calibrate, -1); err != nil {
		return nil, err
	}
	return calibrated(calibrate, func(*Known) float64 { return 1 })
}

// Physics is the simulated latency without a model of the residual. ErrRow.
func Physics(calibrate []Row) (*Baseline, error) {
	if err := check(calibrate, -1); err != nil {
		return nil, err
	}
	return calibrated(calibrate, func(k *Known) float64 { return k.Predicted })
}

// work are the features that throughput arithmetic knows: the request's own prefill and cap, and what is to be done before it.
var work = [...]int{feature.PrefillTokens, feature.CapTokens, feature.BacklogPrefill, feature.BacklogDecode}

// Throughput is what anyone would write without a model: work by the rates at which it is done, and a constant, by least squares on
// rows with the features of feature.Append. Rows whose client left are not fitted. ErrRow; ErrFit if the rows do not tell a rate.
func Throughput(fit, calibrate []Row) (*Baseline, error) {
	const (
		most  = 1500 // rows: the library's memory grows with their square
		least = 1e-3 // s: least squares may say less than nothing
	)
	for _, rows := range [][]Row{fit, calibrate} {
		if err := check(rows, feature.Count); err != nil {
			return nil, err
		}
	}
	var rows []*Row
	for i := range fit {
		if !fit[i].Censored {
			rows = append(rows, &fit[i])
		}
	}
	var varies []int
	for _, f := range work {
		for _, r := range rows {
			if r.Features[f] != rows[0].Features[f] {
				varies = append(varies, f)
				break
			}
		}
	}
	points := func(k *Known) []float64 {
		x := make([]float64, len(varies))
		for i, f := range varies {
			x[i] = float64(k.Features[f])
		}
		return x
	}
	r := new(regression.Regression)
	stride := max(1, (len(rows)+most-1)/most)
	for i := 0; i < len(rows); i += stride {
		r.Train(regression.DataPoint(rows[i].Latency(), points(&rows[i].Known)))
	}
	if err := r.Run(); err != nil {
		return nil, fmt.Errorf("%w: throughput: %w", ErrFit, err)
	}
	c := r.GetCoeffs()
	for _, v := range c {
		if math.IsNaN(v) || math.Abs(v) > 1e9 {
			return nil, fmt.Errorf("%w: throughput: the rows do not tell the rates apart", ErrFit)
		}
	}
	return calibrated(calibrate, func(k *Known) float64 {
		s := c[0]
		for i, f := range varies {
			s += c[i+1] * float64(k.Features[f])
		}
		return max(s, least)
	})
}
