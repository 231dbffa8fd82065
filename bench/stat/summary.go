package stat

import (
	"maps"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// Group sums up requests that were offered in the measured phase. Rates are per second of that phase; ratios are in
// [0, 1], and 0 where nothing is in the denominator.
type Group struct {
	Name     string                 `json:"name"`
	Offered  int                    `json:"offered"`
	Good     int                    `json:"good"` // answered within the objective
	Late     int                    `json:"late"` // answered, not within it
	Outcomes map[record.Outcome]int `json:"outcomes"`
	Shed     map[string]int         `json:"shed,omitempty"`   // by reason
	Errors   map[string]int         `json:"errors,omitempty"` // by reason

	OfferedRate float64 `json:"offered_per_second"`
	Goodput     float64 `json:"goodput_per_second"`
	// Throughput and TokensRate are of the answers that ended in the measured phase, whenever their requests came: those that
	// end while the service is drained say nothing about a second of it.
	Throughput float64 `json:"answered_per_second"`
	TokensRate float64 `json:"output_tokens_per_second"`
	Attainment float64 `json:"attainment_ratio"` // good of all offered
	Kept       float64 `json:"kept_ratio"`       // good of those not shed: whether what was promised was kept
	ShedRatio  float64 `json:"shed_ratio"`
	// HitRatio is the part of prompt tokens that was found in the prefix cache, of answered requests.
	HitRatio float64 `json:"hit_ratio"`

	TTFT   Durations `json:"ttft"`   // of all but shed and failed ones, as E2E
	E2E    Durations `json:"e2e"`    // time-outs and censored requests are lower bounds
	TPOT   Durations `json:"tpot"`   // of answered requests: of those given up half-way none is known, see Survivors
	ITL    Durations `json:"itl"`    // of every gap between tokens, one that was still open a lower bound; none where the run did not keep them
	Queued Durations `json:"queued"` // where the server said
	// Survivors reports that requests were given up after their first token, so that TPOT is of the others only.
	Survivors bool `json:"tpot_of_survivors,omitempty"`
}

// Summary is what one run shows.
type Summary struct {
	Group
	Measured time.Duration        `json:"measured_ns"` // length of the measured phase
	Phases   map[record.Phase]int `json:"phases"`      // everything that was offered, by phase
	Classes  []Group              `json:"classes,omitempty"`
	Tenants  []Group              `json:"tenants,omitempty"`
	Kinds    []Group              `json:"kinds,omitempty"`
	// Jain is Jain's index over the tenants' attainment, 0 where there are no tenants.
	Jain float64 `json:"jain_index"`
}

// Summarize sums up the measured phase of a run under the objectives in slos, by class; nil stands for the run's own.
// Groups are in order of their names; a key that all requests leave empty has none. Nothing is kept of rows.
func Summarize(run *record.Run, rows []record.Request, slos map[string]record.SLO) Summary {
	if slos == nil {
		slos = run.SLOs
	}
	w := window(run)
	s := Summary{Measured: w.length(), Phases: map[record.Phase]int{}}
	all := make([]*record.Request, len(rows))
	for i := range rows {
		s.Phases[rows[i].Phase]++
		all[i] = &rows[i]
	}
	s.Group = group("", all, w, slos)
	by := func(key func(*record.Request) string) []Group {
		parts, measured := map[string][]*record.Request{}, map[string]bool{}
		for _, r := range all {
			parts[key(r)] = append(parts[key(r)], r)
			if r.Phase == record.Measure {
				measured[key(r)] = true
			}
		}
		if measured[""] && len(measured) == 1 {
			return nil
		}
		var out []Group
		for _, name := range slices.Sorted(maps.Keys(measured)) {
			out = append(out, group(name, parts[name], w, slos))
		}
		return out
	}
	s.Classes = by(func(r *record.Request) string { return r.Class })
	s.Tenants = by(func(r *record.Request) string { return r.Tenant })
	s.Kinds = by(func(r *record.Request) string { return r.Kind })
	attained := make([]float64, 0, len(s.Tenants))
	for i := range s.Tenants {
		attained = append(attained, s.Tenants[i].Attainment)
	}
	s.Jain = Jain(attained)
	return s
}

// span is the half-open time from its start to its end, since the start of a run.
type span struct{ start, end time.Duration }

func (s span) length() time.Duration { return max(0, s.end-s.start) }

// window is a run's measured phase; of a partial run, until it was stopped.
func window(run *record.Run) span {
	w := span{run.Warmup, run.Length - run.Tail}
	if run.Partial && run.Wall > 0 {
		w.end = min(w.end, run.Wall)
	}
	return w
}

// Measured is the length of a run's measured phase; of a partial run, until it was stopped.
func Measured(run *record.Run) time.Duration { return window(run).length() }

// group sums up requests of the measured phase, which is w; those of other phases count for the rates of what w saw end.
func group(name string, rows []*record.Request, w span, slos map[string]record.SLO) Group {
	g := Group{Name: name, Outcomes: map[record.Outcome]int{}, Shed: map[string]int{}, Errors: map[string]int{}}
	var ttft, e2e, tpot, itl, queued, openTTFT, openE2E, openITL []time.Duration
	prompt, cached, answered, tokens := 0, 0, 0, 0
	for _, r := range rows {
		if end := r.Intended + r.E2E; r.Outcome == record.OK && end >= w.start && end < w.end {
			answered, tokens = answered+1, tokens+r.OutputTokens
		}
		if r.Phase != record.Measure {
			continue
		}
		g.Offered++
		g.Outcomes[r.Outcome]++
		if r.Queued >= 0 {
			queued = append(queued, r.Queued)
		}
		itl = append(itl, r.ITL...)
		switch r.Outcome {
		case record.OK:
			if record.Objective(slos, r.Class).Keeps(r) {
				g.Good++
			} else {
				g.Late++
			}
			prompt, cached = prompt+r.PromptTokens, cached+r.CachedTokens
			e2e = append(e2e, r.E2E)
			if t := r.TPOT(); t >= 0 {
				tpot = append(tpot, t)
			}
			if r.TTFT >= 0 {
				ttft = append(ttft, r.TTFT)
			}
		case record.Timeout, record.Censored:
			openE2E = append(openE2E, r.E2E)
			if r.TTFT >= 0 {
				ttft = append(ttft, r.TTFT)
				g.Survivors = true
				if gap := lastGap(r); gap > 0 {
					openITL = append(openITL, gap)
				}
			} else {
				openTTFT = append(openTTFT, r.E2E)
			}
		case record.Shed:
			g.Shed[r.Reason]++
		default:
			g.Errors[r.Reason]++
		}
	}
	per := func(n int) float64 {
		if w.length() <= 0 {
			return 0
		}
		return float64(n) / w.length().Seconds()
	}
	shed := g.Outcomes[record.Shed]
	g.OfferedRate, g.Goodput, g.Throughput, g.TokensRate = per(g.Offered), per(g.Good), per(answered), per(tokens)
	g.Attainment, g.Kept = ratio(g.Good, g.Offered), ratio(g.Good, g.Offered-shed)
	g.ShedRatio, g.HitRatio = ratio(shed, g.Offered), ratio(cached, prompt)
	g.TTFT, g.E2E = summarize(ttft, openTTFT), summarize(e2e, openE2E)
	g.TPOT, g.ITL, g.Queued = summarize(tpot, nil), summarize(itl, openITL), summarize(queued, nil)
	return g
}

// lastGap is how long a request that was given up had waited for its next token; 0 where its gaps were not kept. One whose
// only token had come is like that, too.
func lastGap(r *record.Request) time.Duration {
	if len(r.ITL) == 0 {
		return 0
	}
	gap := r.E2E - r.TTFT
	for _, d := range r.ITL {
		gap -= d
	}
	return gap
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Scale returns objectives that are factor times as long; none stays none.
func Scale(slos map[string]record.SLO, factor float64) map[string]record.SLO {
	out := make(map[string]record.SLO, len(slos))
	times := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }
	for class, s := range slos {
		out[class] = record.SLO{TTFT: times(s.TTFT), TPOT: times(s.TPOT), E2E: times(s.E2E)}
	}
	return out
}

// Goodput is the requests/s of the measured phase that were answered within slos, as Summarize counts them.
func Goodput(run *record.Run, rows []record.Request, slos map[string]record.SLO) float64 {
	good := 0
	for i := range rows {
		if r := &rows[i]; r.Phase == record.Measure && record.Objective(slos, r.Class).Keeps(r) {
			good++
		}
	}
	if length := Measured(run); length > 0 {
		return float64(good) / length.Seconds()
	}
	return 0
}

// Jain is the fairness index (Σx)² / (n Σx²) of Jain, Chiu and Hawe (1984): 1 if all are equal, 1/n if one has all. It is
// 0 for no values.
func Jain(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum, squares = sum+v, squares+v*v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(x)) * squares)
}
