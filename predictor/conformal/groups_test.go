package conformal

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestMondrianFallsBackWhenAGroupIsTooSmall(t *testing.T) {
	big, small, bad := Group{0, 0}, Group{1, 9}, Group{2, 0}
	var rows []GroupedScore
	for i := range 99 {
		rows = append(rows, GroupedScore{big, float64(i)})
	}
	for i := range 98 {
		rows = append(rows, GroupedScore{small, 1000 + float64(i)})
	}
	for range 100 {
		rows = append(rows, GroupedScore{bad, math.Inf(1)})
	}
	m, err := NewMondrian(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		g     Group
		alpha float64
		q     float64
		own   bool
		err   error
	}{
		{big, 0.01, 98, true, nil},
		{small, 0.01, 0, false, ErrLevel},    // falls back to all rows, of which a third misses everything
		{small, 0.4, 1059, true, nil},        // ceil(99·0.6) = 60
		{bad, 0.4, 0, true, ErrLevel},        // knows that nothing holds
		{Group{7, 7}, 0.4, 1079, false, nil}, // never seen: ceil(298·0.6) = 179 of all
		{big, 0, 0, false, ErrAlpha},
	} {
		q, own, err := m.Quantile(c.g, c.alpha)
		if !errors.Is(err, c.err) || own != c.own || err == nil && q != c.q {
			t.Errorf("%+v at %v: %v, %v, %v; want %v, %v, %v", c.g, c.alpha, q, own, err, c.q, c.own, c.err)
		}
	}
	again := must(NewMondrian(m.Rows()))
	if !reflect.DeepEqual(again, m) || m.Group(big).Len() != 99 || m.Marginal().Len() != 297 || m.Group(Group{7, 7}) != nil {
		t.Error("its rows do not make the same again")
	}
	if _, err := NewMondrian([]GroupedScore{{Score: math.NaN()}}); !errors.Is(err, ErrValue) {
		t.Errorf("a score of NaN: %v", err)
	}
}

// Marginal calibration covers groups unequally; per group, each is at its level.
func TestMondrianCoversEachGroup(t *testing.T) {
	const sets, alpha = 1500, 0.1
	rng := rand.New(rand.NewPCG(24, 25))
	draw := func(g Group) float64 { return rng.NormFloat64() * (0.2 + 0.8*float64(g.Decile)) }
	groups := []Group{{0, 0}, {0, 1}}
	hits, marginal := map[Group]int{}, map[Group]int{}
	for range sets {
		var rows []GroupedScore
		for range 49 {
			for _, g := range groups {
				rows = append(rows, GroupedScore{g, draw(g)})
			}
		}
		m := must(NewMondrian(rows))
		for _, g := range groups {
			y := draw(g)
			if q, own, err := m.Quantile(g, alpha); err != nil || !own {
				t.Fatal(own, err)
			} else if y <= q {
				hits[g]++
			}
			if y <= must(m.Marginal().Quantile(alpha)) {
				marginal[g]++
			}
		}
	}
	want := 45.0 / 50
	tol := 4 * math.Sqrt(want*(1-want)/sets)
	for _, g := range groups {
		c := float64(hits[g]) / sets
		t.Logf("%+v: coverage %.3f per group, %.3f marginally", g, c, float64(marginal[g])/sets)
		if math.Abs(c-want) > tol {
			t.Errorf("%+v: coverage %.3f, exactly %.3f ± %.3f", g, c, want, tol)
		}
	}
	if c := float64(marginal[groups[1]]) / sets; c > want-tol {
		t.Errorf("the marginal covers the harder group too, %.3f: the test does not need groups", c)
	}
}

func TestDeciles(t *testing.T) {
	var loads []float64
	for i := range 1000 {
		loads = append(loads, float64((i*7)%1000))
	}
	d, err := NewDeciles(loads)
	if err != nil {
		t.Fatal(err)
	}
	var counts [10]int
	for _, l := range loads {
		counts[d.Of(l)]++
	}
	if counts != [10]int{100, 100, 100, 100, 100, 100, 100, 100, 100, 100} {
		t.Errorf("rows per decile: %v", counts)
	}
	if d.Of(-5) != 0 || d.Of(1e9) != 9 || d.Of(math.NaN()) != 9 || d.Of(100) != 1 {
		t.Errorf("deciles of -5, 1e9, NaN, 100: %d, %d, %d, %d", d.Of(-5), d.Of(1e9), d.Of(math.NaN()), d.Of(100))
	}
	for _, bad := range [][]float64{nil, {1, math.NaN()}} {
		if _, err := NewDeciles(bad); !errors.Is(err, ErrValue) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestGroupsOnline(t *testing.T) {
	const alpha = 0.1
	newArm := func(_ Group, q float64, ok bool) (Arm, error) {
		if !ok {
			q = 1
		}
		return NewSFOGD(alpha, q, DefaultSFOGD(alpha), 100, nil)
	}
	rng := rand.New(rand.NewPCG(26, 27))
	m := must(NewGroups(alpha, must(NewRolling(alpha, DefaultWindow, normalRows(rng, 200, 0, 0.3))), newArm))
	easy, hard := Group{0, 0}, Group{0, 9}
	if _, own, ok := m.Quantile(hard); own || !ok {
		t.Errorf("a group without rows: own %v, ok %v", own, ok)
	}
	misses := map[Group]int{}
	const rows = 6000
	for i := range rows {
		if i == 2000 { // on paper and back
			text := must(json.Marshal(m.Export()))
			var s GroupsState
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			other := must(ImportGroups(s, newArm))
			if !reflect.DeepEqual(other.Export(), m.Export()) {
				t.Fatal("the state changes on its way")
			}
			m = other
		}
		for g, mean := range map[Group]float64{easy: 0, hard: 1} {
			s := mean + 0.3*rand.New(rand.NewPCG(uint64(i), uint64(g.Decile))).NormFloat64()
			q, own, ok := m.Quantile(g)
			if own != (i >= 9) || !ok {
				t.Fatalf("row %d of %+v: own %v, ok %v", i, g, own, ok)
			}
			if s > q {
				misses[g]++
			}
			if err := m.Observe(g, Row{ID: uint64(i), Score: s}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for g, n := range misses {
		if c := float64(n) / rows; c < 0.085 || c > 0.12 {
			t.Errorf("%+v: misses %.3f of rows at α 0.1", g, c)
		}
	}
	before, _, _ := m.Quantile(hard)
	if err := m.Rescore(func(r Row) float64 { return r.Score - 0.5 }); err != nil {
		t.Fatal(err)
	}
	if after, _, _ := m.Quantile(hard); math.Abs(after-before+0.5) > 1e-9 {
		t.Errorf("rescored by −0.5, the quantile goes from %v to %v", before, after)
	}
	if err := m.Observe(easy, Row{Score: math.NaN()}); !errors.Is(err, ErrValue) {
		t.Errorf("a score of NaN: %v", err)
	}
	if _, err := NewGroups(0, m.Marginal(), newArm); !errors.Is(err, ErrAlpha) {
		t.Errorf("a level of 0: %v", err)
	}
	if _, err := ImportGroups(GroupsState{}, newArm); !errors.Is(err, ErrState) {
		t.Errorf("an empty state: %v", err)
	}
	if m.Arm(easy) == nil || m.Arm(Group{5, 5}) != nil {
		t.Error("arms of groups")
	}
}

// Regrouped, groups are what they would be if they had seen just these rows; the marginal is what it was.
func TestRegroup(t *testing.T) {
	newArm := func(_ Group, q float64, _ bool) (Arm, error) {
		return NewSFOGD(0.1, q, DefaultSFOGD(0.1), 50, nil)
	}
	all := must(NewRolling(0.1, 100, normalRows(rand.New(rand.NewPCG(3, 3)), 100, 0, 1)))
	m := must(NewGroups(0.1, all, newArm))
	rng := rand.New(rand.NewPCG(4, 4))
	for _, r := range normalRows(rng, 30, 5, 1) {
		if err := m.Observe(Group{Class: 1}, r); err != nil {
			t.Fatal(err)
		}
	}
	before := all.Export()
	var rows []GroupedRow
	for i, r := range normalRows(rng, 40, 2, 1) {
		rows = append(rows, GroupedRow{Group{Decile: uint8(i % 2)}, r})
	}
	if err := m.Regroup(rows); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(all.Export(), before) {
		t.Error("the marginal has changed")
	}
	if m.Arm(Group{Class: 1}) != nil || m.Arm(Group{}).Len() != 20 || m.Arm(Group{Decile: 1}).Len() != 20 {
		t.Errorf("groups are not those of the rows: %+v", m.Export().Groups)
	}
	if _, own, ok := m.Quantile(Group{}); !own || !ok {
		t.Error("20 rows are enough at 0.9")
	}
	m.Need(21)
	if _, own, _ := m.Quantile(Group{}); own {
		t.Error("20 rows speak where 21 are needed")
	}
	if err := m.Regroup([]GroupedRow{{Row: Row{Score: math.NaN()}}}); !errors.Is(err, ErrValue) {
		t.Errorf("a score of NaN: %v", err)
	}
}
