package gbm_test

import (
	"testing"

	"github.com/cadence-slo/cadence/predictor/gbm"
)

// BenchmarkFit100k fits 200 trees of 31 leaves, 255 bins, to 100,000 rows of 20 features, plainly, with five monotone
// features, and with weights. One op is one fit, the binning included.
//
//	go test -run ^$ -bench Fit100k -benchtime 1x -count 3 ./predictor/gbm
func BenchmarkFit100k(b *testing.B) {
	plain, _ := generate("latency", 1, 20, 100_000)
	weighted := plain
	weighted.Weights = make([]float64, plain.Rows())
	for row := range weighted.Weights {
		weighted.Weights[row] = 1 + float64(row%7)
	}
	free := gbm.DefaultParams(0.95)
	monotone := free
	monotone.Monotone = make([]int8, 20)
	copy(monotone.Monotone, []int8{1, 1, 1, -1, -1})
	for _, c := range []struct {
		name string
		data gbm.Data
		p    gbm.Params
	}{{"plain", plain, free}, {"monotone", plain, monotone}, {"weighted", weighted, free}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				m, history, err := gbm.Train(c.data, gbm.Data{}, c.p, nil)
				if err != nil || m.Trees() != c.p.Rounds {
					b.Fatal(m.Trees(), err)
				}
				b.ReportMetric(history.Train[history.Kept], "loss")
			}
		})
	}
}

// BenchmarkPredict predicts one row with 200 trees of 31 leaves over 20 features, and checks its support. Rows change from
// op to op, so that branches cannot be learned by heart.
//
//	go test -run ^$ -bench 'Predict|Supported' -count 10 ./predictor/gbm
func BenchmarkPredict(b *testing.B) {
	m, rows := fitted(b)
	i, sum := 0, 0.0
	b.ReportAllocs()
	for b.Loop() {
		sum += m.Predict(rows[i&4095])
		i++
	}
	if sum == 0 {
		b.Fatal("predicts nothing")
	}
}

// BenchmarkSupported is BenchmarkPredict for the support check with a wanted occupancy.
func BenchmarkSupported(b *testing.B) {
	m, rows := fitted(b)
	i, inside := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if ok, _ := m.Supported(rows[i&4095], 30); ok {
			inside++
		}
		i++
	}
	if inside == 0 {
		b.Fatal("supports nothing")
	}
}

func fitted(b *testing.B) (*gbm.Model, [][]float32) {
	train, held := generate("latency", 1, 20, 10_000)
	m, _, err := gbm.Train(train, gbm.Data{}, gbm.DefaultParams(0.95), nil)
	if err != nil || m.Trees() != 200 {
		b.Fatal(err)
	}
	rows := make([][]float32, 4096)
	for row := range rows {
		rows[row] = rowOf(held, row)
	}
	return m, rows
}
