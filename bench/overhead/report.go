package overhead

import (
	"cmp"
	"fmt"
	"io"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Report is what Run found.
type Report struct {
	Passed     bool        `json:"passed"` // every target was met
	Time       time.Time   `json:"time"`
	Machine    Machine     `json:"machine"`
	Latency    Latency     `json:"latency"`
	Throughput *Throughput `json:"throughput,omitempty"` // nil: not measured
}

// Machine is where it was measured.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Go    string `json:"go"`
}

// Quantiles sums durations up, exactly.
type Quantiles struct {
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

// Cost is CPU time.
type Cost struct {
	Services    time.Duration `json:"services_ns"`     // ingress, NATS, scheduler, worker and projector
	ClickHouse  time.Duration `json:"clickhouse_ns"`   // the engine that the projector inserts into
	Generator   time.Duration `json:"generator_ns"`    // this process
	GeneratorGC time.Duration `json:"generator_gc_ns"` // of it, the garbage collector
	// Others is what the rest of the machine took, time stolen from it included: a measurement beside much of it is one
	// of a busy machine.
	Others time.Duration `json:"others_ns"`
}

func (c Cost) sub(before Cost) Cost {
	return Cost{c.Services - before.Services, c.ClickHouse - before.ClickHouse, c.Generator - before.Generator,
		c.GeneratorGC - before.GeneratorGC, c.Others - before.Others}
}

// Stretch is one rate, offered for a while.
type Stretch struct {
	Offered float64       `json:"offered_per_second"`
	Passed  bool          `json:"passed"`
	Length  time.Duration `json:"length_ns"` // until the last answer
	Load    *load.Summary `json:"load"`
	Cost    Cost          `json:"cpu"`
	// Projected is how many events a second came into ClickHouse.
	Projected float64  `json:"projected_events_per_second"`
	Profile   *Profile `json:"profile,omitempty"`
}

// complete reports whether every request was answered in full.
func (s *Stretch) complete() bool {
	return s.Load.Requests > 0 && s.Load.Outcomes[load.OK] == s.Load.Requests
}

// each is CPU time for one request.
func (s *Stretch) each(d time.Duration) time.Duration {
	return d / time.Duration(max(1, s.Load.Requests))
}

// Latency is the time added to the first token.
type Latency struct {
	Stretch
	TargetP50 time.Duration `json:"target_p50_ns"`
	TargetP99 time.Duration `json:"target_p99_ns"`
	Added     Quantiles     `json:"added_ttft"`  // TTFT less the same prompt's direct one
	TTFT      Quantiles     `json:"ttft"`        // from the intended arrival
	Direct    Quantiles     `json:"direct_ttft"` // planner and engine called in this process
	Lag       Quantiles     `json:"lag"`         // of the generator; part of TTFT
	Stages    []Stage       `json:"stages"`      // by the event log
}

// Throughput is the highest sustained rate.
type Throughput struct {
	Passed    bool          `json:"passed"`
	Target    float64       `json:"target_per_second"`
	Limit     time.Duration `json:"limit_p99_e2e_ns"`
	Sustained float64       `json:"sustained_per_second"`
	Stretches []Stretch     `json:"stretches"`
}

// gcTime is what the garbage collector of this process has taken.
func gcTime() time.Duration {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64 {
		return 0
	}
	return time.Duration(s[0].Value.Float64() * float64(time.Second))
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	p.Line("%s, %d cores, %s/%s, %s", r.Machine.CPU, r.Machine.Cores, r.Machine.OS, r.Machine.Arch, r.Machine.Go)
	l := &r.Latency
	p.Line("\nTime added to the first token at %.0f requests/s (%d requests, %d answered)", l.Offered, l.Load.Requests, l.Load.Outcomes[load.OK])
	t := p.Table("", "p50", "p90", "p99", "p99.9", "max", "target")
	row := func(name string, q Quantiles, target string) {
		t.AppendRow(table.Row{name, ms(q.P50), ms(q.P90), ms(q.P99), ms(q.P999), ms(q.Max), target})
	}
	row("TTFT through the pipeline", l.TTFT, "")
	row("of it, the generator's lag", l.Lag, "")
	row("TTFT of the engine called directly", l.Direct, "")
	row("added", l.Added, fmt.Sprintf("p50 ≤ %s, p99 ≤ %s: %s", ms(l.TargetP50), ms(l.TargetP99), verdict(l.Passed)))
	p.Render(t)
	if len(l.Stages) > 0 {
		p.Line("\nWhere a first token's time goes")
		t = p.Table("stage", "p50", "p99")
		for _, s := range l.Stages {
			t.AppendRow(table.Row{s.Name, ms(s.P50), ms(s.P99)})
		}
		p.Render(t)
	}
	p.Line("\nCPU time a request, and events")
	t = p.Table("requests/s", "services", "ClickHouse", "generator", "its GC", "cores busy", "by others", "events/s", "p99 lag", "p50 E2E", "p99 E2E", "answered", "sustained")
	stretch := func(s *Stretch, passed string) {
		cores := func(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(s.Length)) }
		t.AppendRow(table.Row{fmt.Sprintf("%.0f", s.Offered), us(s.each(s.Cost.Services)), us(s.each(s.Cost.ClickHouse)), us(s.each(s.Cost.Generator)),
			us(s.each(s.Cost.GeneratorGC)), cores(s.Cost.Services + s.Cost.ClickHouse + s.Cost.Generator), cores(max(0, s.Cost.Others)), fmt.Sprintf("%.0f", s.Projected),
			ms(s.Load.Lag.P99), ms(s.Load.E2E.P50), ms(s.Load.E2E.P99),
			fmt.Sprintf("%.2f %%", 100*float64(s.Load.Outcomes[load.OK])/float64(max(1, s.Load.Requests))), passed})
	}
	stretch(&l.Stretch, "")
	if th := r.Throughput; th != nil {
		for i := range th.Stretches {
			stretch(&th.Stretches[i], yes(th.Stretches[i].Passed))
		}
	}
	p.Render(t)
	if th := r.Throughput; th != nil {
		p.Line("\nHighest sustained rate (every request answered, p99 E2E ≤ %s): %.0f requests/s, target ≥ %.0f: %s",
			ms(th.Limit), th.Sustained, th.Target, verdict(th.Passed))
	}
	if prof := r.profile(); prof != nil {
		p.Line("\nWhere the services' CPU time goes (%s of CPU in %s; %.0f %% of it in system calls; %s)", prof.CPU.Round(time.Millisecond), prof.Length,
			100*prof.Kernel, prof.File)
		p.Line("  by owner: %s", shares(prof.Owners, 12))
		p.Line("  hottest functions: %s", shares(prof.Hottest, 10))
	}
	return p.Err
}

// profile is the one of the highest rate that was sustained, else the latency measurement's.
func (r *Report) profile() *Profile {
	best := &r.Latency.Stretch
	if r.Throughput != nil {
		for i := range r.Throughput.Stretches {
			if s := &r.Throughput.Stretches[i]; s.Passed && s.Offered > best.Offered {
				best = s
			}
		}
	}
	return best.Profile
}

func shares(all []Share, n int) string {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Share) int { return cmp.Compare(b.Ratio, a.Ratio) })
	var parts []string
	for _, s := range sorted[:min(n, len(sorted))] {
		parts = append(parts, fmt.Sprintf("%s %.1f %%", s.Name, 100*s.Ratio))
	}
	return strings.Join(parts, ", ")
}

func ms(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64) + " ms"
}

func us(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Microsecond), 'f', 0, 64) + " µs"
}

func verdict(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}
