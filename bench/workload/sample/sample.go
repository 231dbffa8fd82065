// Package sample says what the requests of a workload really are like: how long prompts, caps and answers are, and how much
// of the prompts a prefix cache could find at best. Its numbers are of the first requests of one seed, not of the
// description.
package sample

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
)

// sharedTokens is from how many common first tokens on two prompts are said to share: a page of the cache.
const sharedTokens = 16

// Lengths are numbers of tokens of a group.
type Lengths struct {
	Values []float64 `json:"-"` // ascending
	P50    float64   `json:"p50"`
	Mean   float64   `json:"mean"`
	P95    float64   `json:"p95"`
	P99    float64   `json:"p99"`
	Max    float64   `json:"max"`
}

// Group are the requests of a kind or of a tenant, or all.
type Group struct {
	By       string  `json:"by"`   // all, kind or tenant
	Name     string  `json:"name"` // of the kind or tenant
	Requests int     `json:"requests"`
	Ratio    float64 `json:"ratio"` // of all requests

	Prompt Lengths `json:"prompt_tokens"`
	Cap    Lengths `json:"cap_tokens"`
	Output Lengths `json:"output_tokens"`

	// SharedRatio is the part of the requests whose prompt has its first 16 tokens or more in common with any other.
	SharedRatio float64 `json:"shared_ratio"`
	// HitCeilingRatio is the part of the prompts' tokens that an unlimited prefix cache would have found, with the requests
	// one after the other in this order; the last token of a prompt is never found.
	HitCeilingRatio float64 `json:"hit_ceiling_ratio"`
}

// Arrivals are the times that a trace brings along, of the requests of the sample.
type Arrivals struct {
	Span time.Duration `json:"span_ns"` // first to last
	Rate float64       `json:"rate"`    // requests/s; 0 if all come at once
	CV   float64       `json:"gap_cv"`  // coefficient of variation of the gaps; 1 of a Poisson process
}

// Report is a sample.
type Report struct {
	Workload string    `json:"workload"`
	Requests int       `json:"requests"`
	Groups   []Group   `json:"groups"`             // all, then kinds, then tenants, each in order of their names
	Arrivals *Arrivals `json:"arrivals,omitempty"` // nil: the workload has no times of its own
}

// item is what is kept of a request.
type item struct {
	prompt, limit, output float64
	found                 float64 // tokens of the prompt that an earlier one has
	shared                bool
	kind, tenant          string
}

// Take draws the first n requests of s, fewer if a trace ends before. It needs memory for their prompts.
func Take(s workload.Source, n int) *Report {
	r := &Report{Workload: s.Name()}
	if t, ok := s.(workload.Timed); ok {
		n, r.Arrivals = arrivals(t.Arrivals(), n)
	}
	r.Requests = n
	items := make([]item, n)
	type owned struct {
		prompt []int32
		of     int
	}
	var seen []owned // in order of their prompts: the longest common prefix of any two is one of neighbours
	for i := range items {
		q := s.Request(i)
		at, _ := slices.BinarySearchFunc(seen, q.Prompt, func(o owned, p []int32) int { return slices.Compare(o.prompt, p) })
		found := 0
		for _, j := range []int{at - 1, at} {
			if j >= 0 && j < len(seen) {
				n := common(seen[j].prompt, q.Prompt)
				found = max(found, n)
				if n >= sharedTokens {
					items[i].shared, items[seen[j].of].shared = true, true
				}
			}
		}
		seen = slices.Insert(seen, at, owned{q.Prompt, i})
		items[i].found = float64(min(found, len(q.Prompt)-1))
		items[i].prompt, items[i].limit, items[i].output = float64(len(q.Prompt)), float64(q.Cap), float64(q.Output)
		items[i].kind, items[i].tenant = q.Kind, q.Tenant
	}
	r.Groups = []Group{group("all", "", items, n)}
	r.Groups = append(r.Groups, groups("kind", items, func(it *item) string { return it.kind })...)
	r.Groups = append(r.Groups, groups("tenant", items, func(it *item) string { return it.tenant })...)
	return r
}

// common is how many ids a and b begin with together.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// arrivals describes the first n times, and says how many there were.
func arrivals(at iter.Seq[time.Duration], n int) (int, *Arrivals) {
	count := 0
	var first, last time.Duration
	sum, squares := 0.0, 0.0
	for t := range at {
		if count == n {
			break
		}
		if count == 0 {
			first, last = t, t
		}
		gap := (t - last).Seconds()
		sum += gap
		squares += gap * gap
		last = t
		count++
	}
	a := &Arrivals{Span: last - first}
	if gaps := float64(count - 1); gaps > 0 && sum > 0 {
		mean := sum / gaps
		a.Rate, a.CV = 1/mean, math.Sqrt(max(0, squares/gaps-mean*mean))/mean
	}
	return count, a
}

// groups splits items by a name that at least one of them has.
func groups(by string, items []item, name func(*item) string) []Group {
	var names []string
	parts := map[string][]item{}
	for i := range items {
		k := name(&items[i])
		if parts[k] == nil {
			names = append(names, k)
		}
		parts[k] = append(parts[k], items[i])
	}
	if len(names) == 0 || len(names) == 1 && names[0] == "" {
		return nil
	}
	slices.Sort(names)
	var out []Group
	for _, k := range names {
		out = append(out, group(by, k, parts[k], len(items)))
	}
	return out
}

func group(by, name string, items []item, of int) Group {
	g := Group{By: by, Name: name, Requests: len(items)}
	if len(items) == 0 {
		return g
	}
	g.Ratio = float64(len(items)) / float64(of)
	g.Prompt = lengths(items, func(it *item) float64 { return it.prompt })
	g.Cap = lengths(items, func(it *item) float64 { return it.limit })
	g.Output = lengths(items, func(it *item) float64 { return it.output })
	tokens, found := 0.0, 0.0
	for i := range items {
		if items[i].shared {
			g.SharedRatio += 1 / float64(len(items))
		}
		tokens += items[i].prompt
		found += items[i].found
	}
	g.HitCeilingRatio = found / tokens
	return g
}

func lengths(items []item, of func(*item) float64) Lengths {
	var l Lengths
	for i := range items {
		l.Values = append(l.Values, of(&items[i]))
		l.Mean += of(&items[i]) / float64(len(items))
	}
	slices.Sort(l.Values)
	l.P50, l.P95, l.P99, l.Max = stat.Quantile(l.Values, 0.5), stat.Quantile(l.Values, 0.95), stat.Quantile(l.Values, 0.99), l.Values[len(l.Values)-1]
	return l
}

// label is the group's name for people.
func (g *Group) label() string {
	if g.Name == "" {
		return g.By
	}
	return g.By + " " + g.Name
}

// Print writes the report as tables.
func (r *Report) Print(p *printer.Printer) {
	p.Line("%s: the first %d requests", r.Workload, r.Requests)
	if a := r.Arrivals; a != nil {
		p.Line("over %v: %.3g requests/s, coefficient of variation of the gaps %.2f (1 of a Poisson process)", a.Span.Round(time.Millisecond), a.Rate, a.CV)
	}
	t := p.Table("requests, tokens", "p50", "mean", "p95", "p99", "most")
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, l := range []struct {
			of string
			*Lengths
		}{{"prompt", &g.Prompt}, {"cap", &g.Cap}, {"answer", &g.Output}} {
			t.AppendRow([]any{g.label() + ", " + l.of, tokens(l.P50), tokens(l.Mean), tokens(l.P95), tokens(l.P99), tokens(l.Max)})
		}
		t.AppendSeparator()
	}
	p.Render(t)
	t = p.Table("requests", "number", "part", "share a beginning", "ceiling of the prefix hit ratio")
	for i := range r.Groups {
		g := &r.Groups[i]
		t.AppendRow([]any{g.label(), g.Requests, percent(g.Ratio), percent(g.SharedRatio), percent(g.HitCeilingRatio)})
	}
	p.Render(t)
}

func tokens(x float64) string  { return fmt.Sprintf("%.0f", x) }
func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
