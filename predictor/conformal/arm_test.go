package conformal

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// must is for what cannot fail with the arguments given here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type namedArm struct {
	name string
	Arm
}

// arms is one of each, started from the same rows.
func arms(alpha float64, size int, rows []Row, start float64) []namedArm {
	return []namedArm{
		{"rolling", must(NewRolling(alpha, size, rows))},
		{"aci", must(NewACI(alpha, 0.005, size, rows))},
		{"dtaci", must(NewDtACI(alpha, DefaultDtACI(alpha, 500), size, rows))},
		{"sfogd", must(NewSFOGD(alpha, start, DefaultSFOGD(alpha), size, rows))},
	}
}

func normalRows(rng *rand.Rand, n int, mean, sd float64) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{ID: uint64(i), Score: mean + sd*rng.NormFloat64()}
	}
	return rows
}

func TestDefaultsAreThePapers(t *testing.T) {
	c := DefaultDtACI(0.1, 500)
	if math.Abs(c.Eta-2.72) > 0.005 || c.Sigma != 0.001 || len(c.Gammas) != 8 || c.Gammas[7] != 0.128 {
		t.Errorf("at 0.1 over 500 rows: %+v; the paper has η 2.72, σ 0.001, 8 steps from 0.001 to 0.128", c)
	}
}

// drawRows is a feed as a Queue would give it: some rows are overdue first and settle later, some never.
func drawRows(t *rapid.T, max int) []Row {
	n := rapid.IntRange(0, max).Draw(t, "rows")
	var feed, open []Row
	for i := range n {
		score := float64(rapid.IntRange(-8, 8).Draw(t, "score")) / 4
		if rapid.IntRange(0, 19).Draw(t, "never") == 0 {
			score = math.Inf(1)
		}
		r := Row{ID: uint64(i), Score: score}
		switch rapid.IntRange(0, 5).Draw(t, "stage") {
		case 0:
			r.Stage, r.Score = Overdue, min(score, 1)
			open = append(open, Row{ID: r.ID, Score: score, Stage: Settled})
		case 1:
			r.Stage, r.Score = Dropped, min(score, 1)
		}
		feed = append(feed, r)
		if len(open) > 0 && rapid.Bool().Draw(t, "settle") {
			k := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			if rapid.IntRange(0, 4).Draw(t, "leaves") == 0 {
				open[k].Stage, open[k].Score = Dropped, min(open[k].Score, 1)
			}
			feed = append(feed, open[k])
			open = slices.Delete(open, k, k+1)
		}
	}
	return feed
}

// The window against a plain list of rows.
func TestWindowAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "size")
		alpha := rapid.Float64Range(0.02, 0.9).Draw(t, "alpha")
		a := must(NewRolling(alpha, size, nil))
		var list []Row
		for _, r := range drawRows(t, 120) {
			if r.Stage != Dropped {
				atLeast, n := 1, 1
				for _, o := range list {
					if r.Stage == Settled && o.ID == r.ID {
						continue
					}
					n++
					if o.Score >= r.Score {
						atLeast++
					}
				}
				wantP := float64(atLeast) / float64(n)
				if got := a.rows.pvalue(r); got != wantP {
					t.Fatalf("p-value of %+v among %v: %v, want %v", r, list, got, wantP)
				}
			}
			if err := a.Observe(r); err != nil {
				t.Fatal(err)
			}
			switch r.Stage {
			case Done, Overdue:
				if len(list) == size {
					// Those that are open stay, unless all are.
					for k := 0; k < size && list[0].Stage == Overdue; k++ {
						list = append(list[1:], list[0])
					}
					list = list[1:]
				}
				list = append(list, r)
			case Settled:
				if i := slices.IndexFunc(list, func(o Row) bool { return o.ID == r.ID }); i >= 0 {
					list[i] = r
				}
			case Dropped:
				if i := slices.IndexFunc(list, func(o Row) bool { return o.ID == r.ID }); i >= 0 {
					list[i].Stage = Done
				}
			}
			if a.Len() != len(list) {
				t.Fatalf("%d rows, want %d", a.Len(), len(list))
			}
			scores := make([]float64, len(list))
			open := 0
			for i, o := range list {
				scores[i] = o.Score
				if o.Stage == Overdue {
					open++
				}
			}
			if a.rows.open != open {
				t.Fatalf("%d rows open, want %d", a.rows.open, open)
			}
			want, err := must(NewSplit(scores)).Quantile(alpha)
			got, ok := a.Quantile()
			if ok != (err == nil) || ok && got != want {
				t.Fatalf("after %+v: quantile %v, %v; of the list %v, %v", r, got, ok, want, err)
			}
		}
	})
}

// A row that is overdue waits to be judged however many come after it, and one that its client left makes room.
func TestOverdueRowsAreNotEvicted(t *testing.T) {
	const alpha, eta = 0.1, 0.5
	a := must(NewSFOGD(alpha, 1, SFOGDConfig{Eta: eta, Discount: 1}, 4, nil))
	observe := func(r Row) (moved float64) {
		before, _ := a.Quantile()
		if err := a.Observe(r); err != nil {
			t.Fatal(err)
		}
		q, _ := a.Quantile()
		return q - before
	}
	if d := observe(Row{ID: 1, Score: 0.5, Stage: Overdue}) + observe(Row{ID: 2, Score: 0.5, Stage: Overdue}); d != 0 {
		t.Fatalf("rows that the present quantile covers so far moved it by %v", d)
	}
	for i := range 20 {
		observe(Row{ID: uint64(10 + i), Score: -1})
	}
	if d := observe(Row{ID: 1, Score: 9, Stage: Settled}); d <= 0 {
		t.Errorf("a miss that settles after 20 rows moves the quantile by %v", d)
	}
	if d := observe(Row{ID: 2, Score: 0.5, Stage: Dropped}); d != 0 {
		t.Errorf("one whose client left moves the quantile by %v", d)
	}
	if d := observe(Row{ID: 2, Score: 9, Stage: Settled}); d != 0 || a.Len() != 4 {
		t.Errorf("and settles by %v, with %d rows", d, a.Len())
	}
}

// Anchored, the quantile is the split one of the rows held; without enough of them it stays.
func TestAnchor(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 9))
	for _, n := range []int{0, 8, 9, 50, 300} {
		rows := normalRows(rng, n, 0, 1)
		a := must(NewSFOGD(0.1, 7, DefaultSFOGD(0.1), 100, rows))
		want, ok := 7.0, false
		scores := make([]float64, 0, n)
		for _, r := range rows[max(0, n-100):] {
			scores = append(scores, r.Score)
		}
		if q, err := must(NewSplit(scores)).Quantile(0.1); err == nil {
			want, ok = q, true
		}
		if got := a.Anchor(); got != ok || ok != (n >= 9) {
			t.Errorf("%d rows: anchored %v", n, got)
		}
		if q, _ := a.Quantile(); q != want {
			t.Errorf("%d rows: quantile %v, want %v", n, q, want)
		}
	}
}

// A level that errs is one that is at or above the row's p-value: the two ways of judging agree.
func TestPValueIsWhereTheQuantileStopsCovering(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	w := must(newWindow(50, normalRows(rng, 50, 0, 1)))
	for range 200 {
		s := rng.NormFloat64() * 1.5
		beta := w.pvalue(Row{Score: s})
		for _, level := range []float64{beta - 1e-9, beta + 1e-9} {
			q, ok := w.at(level)
			if missed := ok && s > q; level < 1 && missed != (level >= beta) {
				t.Fatalf("score %v, p-value %v, level %v: quantile %v, %v", s, beta, level, q, ok)
			}
		}
	}
}

func TestArmsAreDeterministicAndGoOnAfterExport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alpha := rapid.SampledFrom([]float64{0.3, 0.1, 0.05}).Draw(t, "alpha")
		feed := drawRows(t, 150)
		cut := rapid.IntRange(0, len(feed)).Draw(t, "cut")
		first, second := arms(alpha, 30, nil, 1), arms(alpha, 30, nil, 1)
		for i, a := range first {
			var other Arm = second[i]
			for k, r := range feed {
				if k == cut {
					text := must(json.Marshal(other.Export()))
					var s State
					if err := json.Unmarshal(text, &s); err != nil {
						t.Fatal(err)
					}
					other = must(Import(s))
				}
				if err := a.Observe(r); err != nil {
					t.Fatal(err)
				}
				if err := other.Observe(r); err != nil {
					t.Fatal(err)
				}
				qa, oka := a.Quantile()
				qb, okb := other.Quantile()
				if qa != qb || oka != okb {
					t.Fatalf("%s, row %d of %d, exported at %d: %v, %v; %v, %v", a.name, k, len(feed), cut, qa, oka, qb, okb)
				}
			}
			if !reflect.DeepEqual(a.Export(), other.Export()) {
				t.Fatalf("%s: states differ:\n%+v\n%+v", a.name, a.Export(), other.Export())
			}
		}
	})
}

func TestImportRefusesWhatWasNotExported(t *testing.T) {
	good := func(i int) State {
		return arms(0.1, 30, normalRows(rand.New(rand.NewPCG(1, 1)), 40, 0, 1), 1)[i].Export()
	}
	for name, spoil := range map[string]func(s *State){
		"kind":     func(s *State) { s.Kind = "oracle" },
		"alpha":    func(s *State) { s.Alpha = 1 },
		"size":     func(s *State) { s.Size = 3 },
		"no size":  func(s *State) { s.Size = 0 },
		"huge":     func(s *State) { s.Size = 1 << 40 },
		"row":      func(s *State) { s.Rows[3].Score = math.NaN() },
		"level":    func(s *State) { s.Level = math.Inf(1) },
		"quantile": func(s *State) { s.Quantile = math.NaN() },
		"energy":   func(s *State) { s.Energy = -1 },
	} {
		for i := range 4 {
			s := good(i)
			if spoil(&s); s.Kind == "" {
				t.Fatal("no kind")
			}
			if _, err := Import(s); !errors.Is(err, ErrState) {
				t.Errorf("%s of arm %d: %v", name, i, err)
			}
		}
	}
	for _, spoil := range []func(s *State){
		func(s *State) { s.Gamma, s.Eta = 0, 0 },
		func(s *State) { s.Gamma, s.Discount, s.Sigma = -1, 2, 2 },
	} {
		for i := 1; i < 4; i++ {
			s := good(i)
			spoil(&s)
			if _, err := Import(s); !errors.Is(err, ErrState) {
				t.Errorf("arm %d without its parameters: %v", i, err)
			}
		}
	}
	s := good(2)
	s.Experts[0].Weight = math.NaN()
	if _, err := Import(s); !errors.Is(err, ErrState) {
		t.Errorf("an expert's weight of NaN: %v", err)
	}
}

func TestConstructorsRefuseBadArguments(t *testing.T) {
	_, e1 := NewRolling(0, 10, nil)
	_, e2 := NewACI(1, 0.1, 10, nil)
	_, e3 := NewDtACI(math.NaN(), DefaultDtACI(0.1, 500), 10, nil)
	_, e4 := NewSFOGD(-1, 0, DefaultSFOGD(0.1), 10, nil)
	for i, err := range []error{e1, e2, e3, e4} {
		if !errors.Is(err, ErrAlpha) {
			t.Errorf("arm %d with a bad level: %v", i, err)
		}
	}
	_, e1 = NewRolling(0.1, 0, nil)
	_, e2 = NewACI(0.1, 0, 10, nil)
	_, e3 = NewDtACI(0.1, DtACIConfig{Eta: 1}, 10, nil)
	_, e4 = NewSFOGD(0.1, math.Inf(1), DefaultSFOGD(0.1), 10, nil)
	_, e5 := NewSFOGD(0.1, 0, SFOGDConfig{Eta: 1}, 10, nil)
	_, e6 := NewRolling(0.1, 10, []Row{{Score: math.NaN()}})
	for i, err := range []error{e1, e2, e3, e4, e5, e6} {
		if !errors.Is(err, ErrValue) {
			t.Errorf("bad argument %d: %v", i, err)
		}
	}
}

func TestBadScoresChangeNothing(t *testing.T) {
	for _, a := range arms(0.1, 30, normalRows(rand.New(rand.NewPCG(1, 1)), 40, 0, 1), 1) {
		before := a.Export()
		for _, s := range []float64{math.NaN(), math.Inf(-1)} {
			if err := a.Observe(Row{Score: s}); !errors.Is(err, ErrValue) {
				t.Errorf("%s: a score of %v: %v", a.name, s, err)
			}
		}
		if err := a.Rescore(func(r Row) float64 { return math.Log(float64(r.ID) - 20) }); !errors.Is(err, ErrValue) {
			t.Errorf("%s: a new score of NaN: %v", a.name, err)
		}
		if !reflect.DeepEqual(before, a.Export()) {
			t.Errorf("%s: refused rows changed the state", a.name)
		}
	}
}

// Under a model whose predictions are all a factor higher, every log ratio falls by its logarithm. An arm that was carried over must
// answer as one that had seen the new scores all along.
func TestRescoreCarriesTheStateOver(t *testing.T) {
	const down = 0.7
	rng := rand.New(rand.NewPCG(9, 10))
	rows := normalRows(rng, 700, 0.5, 0.3)
	rows[650].Score = math.Inf(1)
	moved := slices.Clone(rows)
	for i := range moved {
		moved[i].Score -= down
	}
	old, fresh := arms(0.1, 512, rows[:100], 1), arms(0.1, 512, moved[:100], 1-down)
	for i := range old {
		for k := 100; k < len(rows); k++ {
			if err := errors.Join(old[i].Observe(rows[k]), fresh[i].Observe(moved[k])); err != nil {
				t.Fatal(err)
			}
		}
		asked := 0
		err := old[i].Rescore(func(r Row) float64 {
			asked++
			if r.Score != rows[r.ID].Score {
				t.Errorf("%s: row %d is shown with score %v, was %v", old[i].name, r.ID, r.Score, rows[r.ID].Score)
			}
			return r.Score - down
		})
		if err != nil || asked != 511 {
			t.Errorf("%s: %v; %d rows asked for, want 511", old[i].name, err, asked)
		}
		for k := range 300 {
			qa, oka := old[i].Quantile()
			qb, okb := fresh[i].Quantile()
			if oka != okb || math.Abs(qa-qb) > 1e-9 {
				t.Fatalf("%s, %d rows after: carried over %v, %v; new all along %v, %v", old[i].name, k, qa, oka, qb, okb)
			}
			r := Row{ID: 1000, Score: 0.3*rng.NormFloat64() - 0.2}
			if err := errors.Join(old[i].Observe(r), fresh[i].Observe(r)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestRollingIsMonotoneInAlpha(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(0.01, 0.98).Draw(t, "a")
		y := rapid.Float64Range(x, 0.99).Draw(t, "b")
		a, b := must(NewRolling(x, 50, nil)), must(NewRolling(y, 50, nil))
		for _, r := range drawRows(t, 100) {
			if err := errors.Join(a.Observe(r), b.Observe(r)); err != nil {
				t.Fatal(err)
			}
			qa, oka := a.Quantile()
			qb, okb := b.Quantile()
			if oka && !okb || oka && qa < qb {
				t.Fatalf("%v, %v at %v; %v, %v at %v", qa, oka, x, qb, okb, y)
			}
		}
	})
}

// What an overdue row does at once and what waits until it has ended.
func TestOverdueRowsAreJudgedOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	rows := normalRows(rng, 200, 0, 1)
	for _, a := range []interface {
		Arm
		Level() float64
	}{must(NewACI(0.1, 0.01, 200, rows)), must(NewDtACI(0.1, DefaultDtACI(0.1, 500), 200, rows))} {
		_, dtaci := a.(*DtACI)
		start := a.Level()
		observe := func(id uint64, score float64, s Stage) (moved float64) {
			before := a.Level()
			if err := a.Observe(Row{ID: id, Score: score, Stage: s}); err != nil {
				t.Fatal(err)
			}
			return a.Level() - before
		}
		if d := observe(1000, 5, Overdue); dtaci && d != 0 || !dtaci && d >= 0 {
			t.Errorf("%T: a row that exceeds the quantile already moves the level by %v", a, d)
		}
		if d := observe(1000, 9, Settled); dtaci && d >= 0 || !dtaci && d != 0 {
			t.Errorf("%T: when it ends, the level moves by %v", a, d)
		}
		if d := observe(1001, -5, Overdue); d != 0 {
			t.Errorf("%T: a row whose lower bound the quantile covers moves the level by %v", a, d)
		}
		if d := observe(1001, -4, Settled); d <= 0 {
			t.Errorf("%T: when it turns out to be covered, the level moves by %v", a, d)
		}
		if d := observe(1002, 9, Dropped); d != 0 || a.Len() != 200 {
			t.Errorf("%T: a dropped row moves the level by %v", a, d)
		}
		if a.Level() == start {
			t.Errorf("%T: the level has not moved", a)
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, a := range arms(0.1, 128, normalRows(rng, 128, 0, 1), 1) {
		id := uint64(0)
		n := testing.AllocsPerRun(500, func() {
			id++
			err := errors.Join(a.Observe(Row{ID: id, Score: rng.NormFloat64()}),
				a.Observe(Row{ID: id << 32, Score: 2, Stage: Overdue}),
				a.Observe(Row{ID: id << 32, Score: 3, Stage: Settled}))
			if _, ok := a.Quantile(); err != nil || !ok && a.name == "rolling" {
				t.Error(err, ok)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", a.name, n)
		}
	}
}
