package gbm_test

import (
	_ "embed"
	"encoding/json"
	"math"
	"testing"

	"github.com/cadence-slo/cadence/predictor/gbm"
)

//go:embed testdata/reference.json
var referenceJSON []byte

// reference is a row of reference.json: the losses that libraries reach on rows never fitted.
type reference struct {
	Data            string     `json:"data"`
	Features        int        `json:"features"`
	Seed            uint64     `json:"seed"`
	Rows            int        `json:"rows"`
	Rounds          int        `json:"rounds"`
	Leaves          int        `json:"leaves"`
	MinRows         int        `json:"min_rows"`
	LearningRate    float64    `json:"learning_rate"`
	LabelMeans      [2]float64 `json:"label_means"`
	Level           float64    `json:"level"`
	LightGBM        float64    `json:"lightgbm"`
	Sklearn         float64    `json:"sklearn"`
	Monotone        []int8     `json:"monotone"`
	SklearnMonotone float64    `json:"sklearn_monotone"`
}

func (r reference) params() gbm.Params {
	p := gbm.DefaultParams(r.Level)
	p.Rounds, p.Leaves, p.MinRows, p.LearningRate = r.Rounds, r.Leaves, r.MinRows, r.LearningRate
	return p
}

// TestReference compares held-out losses with those of LightGBM and, with constraints, scikit-learn: at most 2 % above.
func TestReference(t *testing.T) {
	var references []reference
	if err := json.Unmarshal(referenceJSON, &references); err != nil {
		t.Fatal(err)
	}
	if len(references) != 9 {
		t.Fatalf("%d references, want 3 data sets at 3 levels", len(references))
	}
	for _, r := range references {
		train, held := generate(r.Data, r.Seed, r.Features, r.Rows)
		for i, labels := range [][]float64{train.Labels, held.Labels} {
			if got := mean(labels); math.Abs(got-r.LabelMeans[i]) > 1e-12*(1+math.Abs(got)) {
				t.Fatalf("%s: mean label of half %d is %v, the reference has %v", r.Data, i, got, r.LabelMeans[i])
			}
		}
		p := r.params()
		check := func(what string, want float64) {
			m, _, err := gbm.Train(train, gbm.Data{}, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			loss, err := m.Loss(held)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%-8s %.2f %-16s %.5f, ours %.5f (%+.2f %%)", r.Data, r.Level, what, want, loss, 100*(loss/want-1))
			if !(loss <= 1.02*want) {
				t.Errorf("%s at %v: loss %v, %s has %v", r.Data, r.Level, loss, what, want)
			}
		}
		check("lightgbm", r.LightGBM)
		if r.Monotone != nil {
			p.Monotone = r.Monotone
			check("sklearn_monotone", r.SklearnMonotone)
		}
	}
}

// splitmix is the generator of Steele, Lea & Flood 2014.
type splitmix uint64

func (s *splitmix) uniform() float64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	z ^= z >> 31
	return float64(z>>11) * 0x1p-53
}

// generate makes the data that testdata/reference.py makes.
func generate(name string, seed uint64, features, rows int) (train, held gbm.Data) {
	label := map[string]func(x []float64, noise float64) float64{"spread": spread, "friedman": friedman, "latency": latency}[name]
	random := splitmix(seed)
	half := func() gbm.Data {
		d := gbm.Data{Columns: make([][]float32, features)}
		x := make([]float64, features)
		for range rows {
			for f := range x {
				v := float32(random.uniform())
				d.Columns[f] = append(d.Columns[f], v)
				x[f] = float64(v)
			}
			noise := 0.0
			for range 12 {
				noise += random.uniform()
			}
			d.Labels = append(d.Labels, label(x, noise-6))
		}
		return d
	}
	return half(), half()
}

func spread(x []float64, noise float64) float64 {
	return 8*(x[0]-0.5)*(x[0]-0.5) + (0.1+x[0]*x[0])*noise
}

func friedman(x []float64, noise float64) float64 {
	return 10*math.Sin(math.Pi*x[0]*x[1]) + 20*(x[2]-0.5)*(x[2]-0.5) + 10*x[3] + 5*x[4] + noise
}

func latency(x []float64, noise float64) float64 {
	queue, prompt, limit, hit, free := x[0], x[1], x[2], x[3], x[4]
	typical := 0.2 * (1 + 4*queue) * (1 + 2*prompt*(1-0.8*hit)) * (1 + limit*limit)
	return typical * math.Exp(max(0, 0.3-free)*3) * math.Exp(0.3*(0.5+queue)*noise)
}

func rowOf(d gbm.Data, row int) []float32 {
	x := make([]float32, len(d.Columns))
	for f, column := range d.Columns {
		x[f] = column[row]
	}
	return x
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
