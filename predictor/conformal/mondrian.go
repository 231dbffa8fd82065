package conformal

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
)

// Group is a cell of the Mondrian partition: rows are calibrated among their like. It must be known before the row starts.
type Group struct {
	// Class of the tenant, numbered by the caller.
	Class uint16 `json:"class"`
	// Decile of the load at arrival, 0 … 9; see Deciles.
	Decile uint8 `json:"decile"`
}

func (g Group) compare(o Group) int {
	return cmp.Or(cmp.Compare(g.Class, o.Class), cmp.Compare(g.Decile, o.Decile))
}

// Deciles cuts loads into ten ranges: decile d is [d[d−1], d[d]), open at both ends of the scale.
type Deciles [9]float64

// NewDeciles are the deciles of loads, in any order. ErrValue if there are none or one is NaN.
func NewDeciles(loads []float64) (Deciles, error) {
	s := slices.Sorted(slices.Values(loads))
	if len(s) == 0 || math.IsNaN(s[0]) { // NaN sorts first
		return Deciles{}, fmt.Errorf("%w: loads of deciles", ErrValue)
	}
	var d Deciles
	for i := range d {
		d[i] = s[(i+1)*len(s)/10]
	}
	return d, nil
}

// Of is the decile of load, 0 … 9. NaN is in the last: what is not known is not light.
func (d *Deciles) Of(load float64) uint8 {
	return uint8(sort.Search(len(d), func(i int) bool { return load < d[i] }))
}

// GroupedScore is a calibration row of Mondrian.
type GroupedScore struct {
	Group Group   `json:"group"`
	Score float64 `json:"score"`
}

// Mondrian is split conformal calibration per group (Vovk 2012), with the marginal where a group is too small for the level. It does
// not change.
type Mondrian struct {
	groups map[Group]*Split
	all    *Split
}

// NewMondrian copies rows, in any order. ErrValue as for NewSplit.
func NewMondrian(rows []GroupedScore) (*Mondrian, error) {
	byGroup := map[Group][]float64{}
	all := make([]float64, 0, len(rows))
	for _, r := range rows {
		byGroup[r.Group] = append(byGroup[r.Group], r.Score)
		all = append(all, r.Score)
	}
	m := &Mondrian{groups: make(map[Group]*Split, len(byGroup))}
	var err error
	if m.all, err = NewSplit(all); err != nil {
		return nil, err
	}
	for g, scores := range byGroup {
		if m.groups[g], err = NewSplit(scores); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Quantile is the one of the group; own is false if it is the marginal's, which claims nothing for the group itself. ErrAlpha;
// ErrLevel if the marginal has none either. A group whose own rows say that no finite bound holds does not fall back: that is
// knowledge, not lack of it.
func (m *Mondrian) Quantile(g Group, alpha float64) (q float64, own bool, err error) {
	if s := m.groups[g]; s != nil {
		if _, ok := Rank(s.Len(), alpha); ok {
			q, err = s.Quantile(alpha)
			return q, true, err
		}
	}
	q, err = m.all.Quantile(alpha)
	return q, false, err
}

// Group is the calibration of one group, nil if it has no rows; Marginal that of all rows.
func (m *Mondrian) Group(g Group) *Split { return m.groups[g] }

// Marginal is the calibration of all rows together.
func (m *Mondrian) Marginal() *Split { return m.all }

// Rows is a copy, what NewMondrian takes, ordered by group and score.
func (m *Mondrian) Rows() []GroupedScore {
	rows := make([]GroupedScore, 0, m.all.Len())
	for _, g := range slices.SortedFunc(maps.Keys(m.groups), Group.compare) {
		for _, s := range m.groups[g].scores {
			rows = append(rows, GroupedScore{Group: g, Score: s})
		}
	}
	return rows
}
