package trainer

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/feature"
)

// Stratum is a regime of rows: what waited, how full the KV cache was, and how much of the prompt was cached.
type Stratum struct{ Queue, KV, Prefix uint8 }

var (
	queues   = [...]string{"none", "to half the slots", "to twice the slots", "more"}
	kvs      = [...]string{"over half free", "to half free", "to a fifth free"}
	prefixes = [...]string{"no hit", "to half the prompt", "over half the prompt"}
)

const strata = len(queues) * len(kvs) * len(prefixes)

// StratumOf is that of a vector of feature.Append.
func StratumOf(x []float32) (s Stratum) {
	switch q := x[feature.Waiting]; {
	case q > 2:
		s.Queue = 3
	case q > 0.5:
		s.Queue = 2
	case q > 0:
		s.Queue = 1
	}
	switch free := x[feature.Free]; {
	case free <= 0.2:
		s.KV = 2
	case free <= 0.5:
		s.KV = 1
	}
	switch hit := x[feature.CachedTokens]; {
	case hit > x[feature.PromptTokens]/2:
		s.Prefix = 2
	case hit > 0:
		s.Prefix = 1
	}
	return s
}

// String names the regime.
func (s Stratum) String() string {
	return fmt.Sprintf("queue %s, KV %s, prefix %s", queues[s.Queue], kvs[s.KV], prefixes[s.Prefix])
}

func (s Stratum) index() int {
	return (int(s.Queue)*len(kvs)+int(s.KV))*len(prefixes) + int(s.Prefix)
}

func stratum(index int) Stratum {
	return Stratum{uint8(index / len(prefixes) / len(kvs)), uint8(index / len(prefixes) % len(kvs)), uint8(index % len(prefixes))}
}

// Reservoir keeps a sample of the rows that it was given: of each stratum the first so many, then a uniform sample (Vitter 1985,
// algorithm R), so that what happens seldom is not crowded out by what happens always. It has one owner.
type Reservoir struct {
	per    int
	rng    *rand.Rand
	rows   [strata][]kept
	seen   [strata]int64
	number int64
}

// kept is a row and its place among all that were seen.
type kept struct {
	Row
	number int64
}

// NewReservoir keeps at most per rows of each stratum, [1, 1048576]. It takes over rng. ErrConfig.
func NewReservoir(per int, rng *rand.Rand) (*Reservoir, error) {
	if per < 1 || per > 1<<20 || rng == nil {
		return nil, fmt.Errorf("%w: %d rows of each stratum, allowed: 1 to 1048576, with a random generator", ErrConfig, per)
	}
	return &Reservoir{per: per, rng: rng}, nil
}

// Add takes a row with the features of feature.Append, and copies it. ErrRow; nothing has changed then.
func (r *Reservoir) Add(row Row) error {
	if err := row.check(int(r.number), feature.Count); err != nil {
		return err
	}
	i := StratumOf(row.Features).index()
	k := kept{row, r.number}
	r.number++
	r.seen[i]++
	if len(r.rows[i]) < r.per {
		k.Features = slices.Clone(row.Features)
		r.rows[i] = append(r.rows[i], k)
		return nil
	}
	if at := r.rng.Int64N(r.seen[i]); at < int64(r.per) {
		old := &r.rows[i][at]
		k.Features = old.Features
		copy(k.Features, row.Features)
		*old = k
	}
	return nil
}

// Rows returns what it holds, in the order in which it came. A row's weight is its own times how many of its stratum were seen for each
// that is kept, so that together they stand for all. The features are lent until the next Add.
func (r *Reservoir) Rows() []Row {
	var all []kept
	for i := range r.rows {
		for _, k := range r.rows[i] {
			k.Weight *= float64(r.seen[i]) / float64(len(r.rows[i]))
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Compare(a.number, b.number) })
	rows := make([]Row, len(all))
	for i := range all {
		rows[i] = all[i].Row
	}
	return rows
}

// Strata counts what was seen and what is kept, of each stratum that was seen.
func (r *Reservoir) Strata() []artifact.Stratum {
	var s []artifact.Stratum
	for i, n := range r.seen {
		if n > 0 {
			s = append(s, artifact.Stratum{Name: stratum(i).String(), Seen: n, Kept: int64(len(r.rows[i]))})
		}
	}
	return s
}
