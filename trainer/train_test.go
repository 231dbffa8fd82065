package trainer_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/trainer"
)

func quickPlan(level float64) *trainer.Plan {
	p := trainer.DefaultPlan(level)
	p.Fit = quick(1 - level)
	p.Rule.MinRows, p.Rule.GroupRows = 300, 100
	return &p
}

func train(t testing.TB, rows []trainer.Row, champion *artifact.Artifact, p *trainer.Plan) *trainer.Training {
	t.Helper()
	x, err := trainer.Train(rows, champion, header(t), length.New(1, 0).State(), p)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// later moves rows to rounds behind n others, with all else as it was.
func later(rows []trainer.Row, n int) []trainer.Row {
	moved := make([]trainer.Row, len(rows))
	for i, r := range rows {
		r.Round, r.Run, r.At = r.Round+n, r.Run+1000*n, r.At.Add(time.Duration(n)*24*time.Hour)
		moved[i] = r
	}
	return moved
}

// widen makes the residuals of some rounds vary as many times as much.
func widen(rows []trainer.Row, by float64, rounds ...int) {
	for i := range rows {
		for _, r := range rounds {
			if rows[i].Round == r {
				rows[i].Label *= by
			}
		}
	}
}

// A first model takes its place when its bounds hold; a later one is compared on what neither has learned from, and one that is made of
// rounds in which latencies scattered more is rejected.
func TestTrainComparesOnWhatIsNew(t *testing.T) {
	rows, p := synthetic(21, 4, 4, 150), quickPlan(0.9)
	first := train(t, rows, nil, p)
	if !first.Outcome.Swap || first.Outcome.Reason != trainer.First || first.Rounds != 4 || first.Compared != first.Test || first.Test != 600 {
		t.Fatalf("first: %+v, of %d rows %d compared", first.Outcome.Reason, first.Test, first.Compared)
	}
	if first.Error > 0.5*first.Physics {
		t.Errorf("it is off by %.3f, the physics by %.3f", first.Error, first.Physics)
	}
	h := &first.Artifact.Header
	if len(h.Coverage) < 2 || h.To.Before(h.From) || h.Coverage[0].Coverage.Rows() != 600 {
		t.Errorf("header: %v to %v, coverage %+v", h.From, h.To, h.Coverage)
	}
	for i := range rows { // the last round is what it has not learned from
		if after := rows[i].At.After(h.To); after != (rows[i].Round == 3) {
			t.Fatalf("a row of round %d: after what was learned from is %v", rows[i].Round, after)
		}
	}

	// The same rows: only those of the last round are new to the champion.
	again := train(t, rows, first.Artifact, p)
	if again.Compared != 600 || again.Outcome.Reason != trainer.NotWorse || math.Abs(again.Outcome.Width-1) > 1e-9 {
		t.Errorf("itself: %v of %d rows, width %v", again.Outcome.Reason, again.Compared, again.Outcome.Width)
	}

	next := later(synthetic(22, 4, 4, 150), 4)
	all := append(append([]trainer.Row(nil), rows...), next...)
	second := train(t, all, first.Artifact, p)
	if second.Rounds != 8 || second.Test != 1200 || second.Compared != 1200 || !second.Outcome.Swap {
		t.Errorf("second: %v; %d rounds, %d of %d compared; width %v", second.Outcome.Reason, second.Rounds, second.Compared, second.Test, second.Outcome.Width)
	}
	widen(all, 2.5, 4, 5, 6)
	worse := train(t, all, first.Artifact, p)
	if worse.Outcome.Swap || worse.Outcome.Reason != trainer.Wider {
		t.Errorf("worse: %v, width %v", worse.Outcome.Reason, worse.Outcome.Width)
	}

	p.Rule.MinRows = 601
	if few := train(t, rows, nil, p); few.Outcome.Swap || few.Outcome.Reason != trainer.TooFewRows {
		t.Errorf("few: %v", few.Outcome.Reason)
	}
	expect(t, trainer.ErrRounds, func() error {
		_, err := trainer.Train(rows[:1800], nil, header(t), length.New(1, 0).State(), p)
		return err
	})
	p.Rule.Alpha = 0.2
	expect(t, trainer.ErrConfig, func() error { _, err := trainer.Train(rows, nil, header(t), length.New(1, 0).State(), p); return err })
}

// Equal rows, plan and seed make the same file.
func TestTrainIsDeterministic(t *testing.T) {
	rows, p := synthetic(23, 5, 4, 150), quickPlan(0.8)
	var files [][]byte
	for range 2 {
		b, err := train(t, rows, nil, p).Artifact.Encode()
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two files")
	}
}

// What is deployed says what the candidate says: at the level of its calibration, and at no other; and from a file as from memory.
func TestDeployedSaysWhatTheCandidateSays(t *testing.T) {
	f := split(t, synthetic(24, 4, 4, 150), 0)
	c := quick(0.1)
	c.MinSupport = 0
	m := fit(t, f, c)
	a, err := m.Artifact(header(t), length.New(1, 0).State())
	if err != nil {
		t.Fatal(err)
	}
	a.Header.From, a.Header.To = day, day
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := artifact.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	outside := 0
	for _, a := range []*artifact.Artifact{a, read} {
		d, err := trainer.Deploy(a)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Test {
			k := &f.Test[i].Known
			k.Weight = 1
			want, wok := m.Bound(k, 0.1)
			got, ok := d.Bound(k, 0.1)
			if wr, ws := m.Residual(k); true {
				if gr, gs := d.Residual(k); gr != wr || gs != ws {
					t.Fatalf("residual %v, %v, want %v, %v", gr, gs, wr, ws)
				}
				if !ws {
					outside++
				}
			}
			if ok != wok || math.Abs(math.Log(got/want)) > 0.15 { // weights of an arm are 1, and its quantile is that of the group
				t.Fatalf("row %d: bound %v, %v, want %v, %v", i, got, ok, want, wok)
			}
			if _, ok := d.Bound(k, 0.05); ok {
				t.Fatal("a bound at a level that it was not calibrated at")
			}
		}
		short := f.Test[0].Known
		short.Features = short.Features[:feature.Count-1]
		if r, ok := d.Residual(&short); r != 0 || ok {
			t.Error("a residual of features of another version")
		}
	}
	if outside == 0 {
		t.Error("every row was supported")
	}
}
