package peer

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Report is what Engine found.
type Report struct {
	Time         time.Time        `json:"time"`
	Machine      pipeline.Machine `json:"machine"`
	Model        pipeline.Model   `json:"model"`
	Quick        bool             `json:"quick"`             // too short to be a result
	Stopped      bool             `json:"stopped,omitempty"` // before its end: what is here is finished
	Threads      int              `json:"threads"`
	Slots        int              `json:"slots"` // of llama-server, and requests that run at once in ours
	KVTokens     int              `json:"kv_tokens"`
	PeerVersion  string           `json:"llama_server_version,omitempty"`
	Measurements []Measurement    `json:"measurements,omitempty"`
	Prefill      *PrefillReport   `json:"prefill,omitempty"`
}

// Empty reports whether no part is finished.
func (r *Report) Empty() bool { return len(r.Measurements) == 0 && r.Prefill == nil }

// Side is one server's part of a measurement.
type Side struct {
	Pooled Block   `json:"pooled"` // all blocks together
	Blocks []Block `json:"blocks"` // in order of time
}

// Measurement is one workload in one way of sending it.
type Measurement struct {
	Name        string        `json:"name"`
	Workload    workload.Spec `json:"workload"`
	Concurrency int           `json:"concurrency,omitempty"`         // of a closed loop
	Rate        float64       `json:"requests_per_second,omitempty"` // of an open loop
	OpenLength  time.Duration `json:"arrivals_ns,omitempty"`         // of its blocks
	PeerArgs    []string      `json:"llama_server_args"`
	Trials      []Trial       `json:"llama_server_trials,omitempty"` // from which the arguments were chosen
	Ours        Side          `json:"cadence"`
	Theirs      Side          `json:"llama_server"`
	Ratios      Ratios        `json:"cadence_over_llama_server"`
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	p := &printer.Printer{W: w}
	p.Line("%s", r.Machine.String())
	p.Line("%s, %d threads", r.Model.String(), r.Threads)
	if r.Quick {
		p.Line("A quick run: it shows that the comparison works, its figures mean nothing.")
	}
	if r.Stopped {
		p.Line("Stopped before its end: these parts are finished, the others are missing.")
	}
	if len(r.Measurements) > 0 {
		p.Line("llama-server %s; %d slots, %d tokens of KV cache on either side", r.PeerVersion, r.Slots, r.KVTokens)
	}
	for i := range r.Measurements {
		r.Measurements[i].write(p)
	}
	if r.Prefill != nil {
		r.Prefill.write(p)
	}
	return p.Err
}

func (m *Measurement) write(p *printer.Printer) {
	p.Line("\n%s (%d pairs of blocks; llama-server %s)", m.Name, len(m.Ours.Blocks), strings.Join(m.settings(), " "))
	t := p.Table("", "Cadence", "llama-server", "ratio", "least", "greatest")
	o, h, q := &m.Ours.Pooled, &m.Theirs.Pooled, &m.Ratios
	row := func(name, ours, theirs string, ratio *Ratio) {
		cells := table.Row{name, ours, theirs, "", "", ""}
		if ratio != nil && len(ratio.All) > 0 {
			cells = table.Row{name, ours, theirs, times(ratio.Median), times(ratio.Min), times(ratio.Max)}
		}
		t.AppendRow(cells)
	}
	rate := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	row("output tokens/s", rate(o.OutputRate), rate(h.OutputRate), &q.OutputRate)
	row("prompt tokens/s", rate(o.PromptRate), rate(h.PromptRate), &q.PromptRate)
	row("prompt tokens / TTFT", rate(o.PrefillRate), rate(h.PrefillRate), &q.PrefillRate)
	row("TTFT p50", ms(o.TTFT.P50), ms(h.TTFT.P50), &q.TTFTP50)
	row("TTFT p99", ms(o.TTFT.P99), ms(h.TTFT.P99), &q.TTFTP99)
	row("ITL p50", ms(o.ITL.P50), ms(h.ITL.P50), &q.ITLP50)
	row("ITL p99", ms(o.ITL.P99), ms(h.ITL.P99), &q.ITLP99)
	row("E2E p50", ms(o.E2E.P50), ms(h.E2E.P50), &q.E2EP50)
	row("E2E p99", ms(o.E2E.P99), ms(h.E2E.P99), &q.E2EP99)
	row("prompt tokens cached", percent(o.CachedRatio), percent(h.CachedRatio), nil)
	row("requests answered", share(o.Complete, o.Requests), share(h.Complete, h.Requests), nil)
	p.Render(t)
	for _, s := range []struct {
		name    string
		reasons map[string]int
	}{{"Cadence", o.Reasons}, {"llama-server", h.Reasons}} {
		if len(s.reasons) > 0 {
			p.Line("%s did not answer: %v", s.name, s.reasons)
		}
	}
}

// settings are the arguments that were chosen.
func (m *Measurement) settings() []string {
	if i := slices.IndexFunc(m.PeerArgs, func(a string) bool { return strings.HasSuffix(a, "kv-unified") }); i >= 0 {
		return m.PeerArgs[i:]
	}
	return m.PeerArgs
}

func times(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func ms(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 2, 64) + " ms"
}

func percent(ratio float64) string { return strconv.FormatFloat(100*ratio, 'f', 1, 64) + " %" }

// share is a part of a whole.
func share(n, of int) string {
	return fmt.Sprintf("%d of %d (%s)", n, of, percent(float64(n)/float64(max(1, of))))
}
