package enginecore

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/google/pprof/profile"
)

// Goal is how much of a step may be anything but llama.cpp's computing.
const Goal = 0.02

// Wall is what an iteration of the engine loop, from the beginning of a step to that of the next, is spent on: shares of
// its wall time, which add up to 1.
type Wall struct {
	Decode   float64 `json:"decode"`   // llama_decode, and waiting for its logits
	Sampling float64 `json:"sampling"` // choosing tokens
	Step     float64 `json:"step"`     // what else there is in Backend.Step
	Moves    float64 `json:"moves"`    // Backend.Apply
	Start    float64 `json:"start"`    // Backend.Start
	Text     float64 `json:"text"`     // Backend.AppendPiece and EOG
	KV       float64 `json:"kv"`       // calls of the pages, clock readings included
	Radix    float64 `json:"radix"`    // calls of the prefix tree, clock readings included
	Rest     float64 `json:"rest"`     // the planner itself, the loop, the outbox, time without a processor
	// CoreCalls counts the calls of pages and prefix tree in an iteration: each is timed, which costs some 0.1 µs.
	CoreCalls float64 `json:"core_calls_per_iteration"`
}

// Arm is what was measured on one kind of pages and prefix tree.
type Arm struct {
	Name            string    `json:"name"`
	Blocks          int       `json:"blocks"`
	TokensPerSecond []float64 `json:"output_tokens_per_second"` // by block, in order of time
	Answers         int64     `json:"answers"`
	Steps           int       `json:"steps"`
	MeanBatch       float64   `json:"mean_batch"`
	PrefillTokens   int       `json:"prefill_tokens"`
	// Iteration is from the beginning of a step to that of the next, Step the call of the backend.
	IterationP50 time.Duration `json:"iteration_p50_ns"`
	IterationP99 time.Duration `json:"iteration_p99_ns"`
	StepP50      time.Duration `json:"step_p50_ns"`
	StepP99      time.Duration `json:"step_p99_ns"`
	Wall         Wall          `json:"wall"`
	CPU          CPU           `json:"cpu"`
	// Core is pages, prefix tree and planner: Wall.KV + Wall.Radix, and of Wall.Rest what is the planner's by the CPU profile
	// of the engine loop outside of Backend.Step.
	Core float64 `json:"kv_radix_planner_ratio"`
	// NonDecode is the part of an iteration in which llama.cpp did not compute: 1 - Wall.Decode.
	NonDecode float64  `json:"non_decode_ratio"`
	Files     []string `json:"files,omitempty"`
}

// Report is the outcome.
type Report struct {
	Engine       string  `json:"engine"`
	Threads      int     `json:"threads"`
	Batch        int     `json:"batch"`
	KVTokens     int     `json:"kv_tokens"`
	SharedRatio  float64 `json:"shared_ratio"`
	SystemTokens int     `json:"system_tokens"`
	TailTokens   int     `json:"tail_tokens"`
	OutputTokens int     `json:"output_tokens"`
	Arms         []Arm   `json:"arms"`
	// FastOverNaive are the ratios of tokens/s of neighbouring blocks; nothing without a naive arm.
	FastOverNaive []float64 `json:"fast_over_naive,omitempty"`
	Goal          float64   `json:"non_decode_goal_ratio"`
	// Met: the fast arm keeps the goal.
	Met bool `json:"goal_met"`
}

// report sums up.
func (p *profiler) report(arms []string) (*Report, error) {
	o := p.o
	r := &Report{Engine: o.engine(), Threads: o.Threads, Batch: o.Batch, KVTokens: o.KVTokens, SharedRatio: o.SharedRatio,
		SystemTokens: o.SystemTokens, TailTokens: o.TailTokens, OutputTokens: o.OutputTokens, Goal: Goal}
	for _, name := range arms {
		merged, err := profile.Merge(p.profiles[name])
		if err != nil {
			return nil, fmt.Errorf("enginecore: CPU profile: %w", err)
		}
		var kernel time.Duration
		for _, b := range p.blocks[name] {
			kernel += b.cpu
		}
		a := sum(name, p.blocks[name], spent(merged, kernel))
		if o.Out != "" {
			if a.Files, err = p.write(name, merged); err != nil {
				return nil, err
			}
		}
		r.Arms = append(r.Arms, a)
	}
	r.Met = r.Arms[0].NonDecode <= Goal
	if len(r.Arms) > 1 {
		for i, fast := range r.Arms[0].TokensPerSecond {
			r.FastOverNaive = append(r.FastOverNaive, fast/r.Arms[1].TokensPerSecond[i])
		}
	}
	return r, nil
}

// sum is the arm of some blocks.
func sum(name string, blocks []*block, cpu CPU) Arm {
	a := Arm{Name: name, Blocks: len(blocks), CPU: cpu}
	var iterations, steps []time.Duration
	var all, decoded, sampled, step, apply, start, text, pages, tree time.Duration
	entries, calls := 0, 0
	for _, b := range blocks {
		c := b.clock
		a.TokensPerSecond = append(a.TokensPerSecond, float64(b.tokens)/b.length.Seconds())
		a.Answers += b.ends
		a.PrefillTokens += c.prefill
		iterations, steps = append(iterations, c.iterations...), append(steps, c.steps...)
		all += c.step + c.loop
		decoded, sampled = decoded+c.decode, sampled+c.sample
		step, apply, start, text, pages, tree = step+c.step, apply+c.apply, start+c.start, text+c.text, pages+c.pages, tree+c.tree
		entries, calls = entries+c.entries, calls+c.calls
	}
	a.Steps = len(steps)
	a.MeanBatch = float64(entries) / float64(max(1, len(steps)))
	a.IterationP50, a.IterationP99 = quantile(iterations, 0.5), quantile(iterations, 0.99)
	a.StepP50, a.StepP99 = quantile(steps, 0.5), quantile(steps, 0.99)
	w := &a.Wall
	w.Decode, w.Sampling, w.Step = ratio(decoded, all), ratio(sampled, all), ratio(step-decoded-sampled, all)
	w.Moves, w.Start, w.Text, w.KV, w.Radix = ratio(apply, all), ratio(start, all), ratio(text, all), ratio(pages, all), ratio(tree, all)
	w.Rest = max(0, 1-w.Decode-w.Sampling-w.Step-w.Moves-w.Start-w.Text-w.KV-w.Radix)
	w.CoreCalls = float64(calls) / float64(max(1, len(steps)))
	// The CPU profile sees pages, tree and their clocks in the loop too; Rest is the others'.
	mine, rest := 0.0, 0.0
	for _, s := range cpu.Outside {
		switch s.Name {
		case planning:
			mine = s.Ratio
			rest += s.Ratio
		case "kv", "radix", moves, spelling, measured:
		default:
			rest += s.Ratio
		}
	}
	a.Core = w.KV + w.Radix
	if rest > 0 {
		a.Core += w.Rest * mine / rest
	}
	a.NonDecode = 1 - w.Decode
	return a
}

// quantile of durations, which it sorts; 0 if there are none.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	p := printer.Printer{W: w}
	p.Line("Engine profile of %s, %d threads: %d requests at once, %.0f %% with one of 4 system prompts of %d tokens and about %d more, answers of %d tokens",
		r.Engine, r.Threads, r.Batch, 100*r.SharedRatio, r.SystemTokens, r.TailTokens, r.OutputTokens)
	for i := range r.Arms {
		r.Arms[i].write(&p)
	}
	if len(r.FastOverNaive) > 0 {
		p.Line("\nfast over naive, output tokens/s of neighbouring blocks: %.3f", r.FastOverNaive)
	}
	if r.Engine == "mock" {
		p.Line("\nThe mock computes nothing: every step is the cores' own.")
		return p.Err
	}
	p.Line("\nnot decode: %.2f %% of an iteration (goal: at most %.0f %%; met: %v)", 100*r.Arms[0].NonDecode, 100*r.Goal, r.Met)
	p.Line("Wall time is measured. CPU shares are samples of the Go runtime's profiler: time in llama.cpp counts for the Go function that called it; threads of\nllama.cpp's own are not in it, and samples may be lost in long calls.")
	return p.Err
}

func (a *Arm) write(p *printer.Printer) {
	p.Line("\n%s: %.1f output tokens/s by block; %d steps, %.1f requests each, %d answers", a.Name, a.TokensPerSecond, a.Steps, a.MeanBatch, a.Answers)
	p.Line("  iteration p50 %s p99 %s; step p50 %s p99 %s", a.IterationP50.Round(time.Microsecond), a.IterationP99.Round(time.Microsecond),
		a.StepP50.Round(time.Microsecond), a.StepP99.Round(time.Microsecond))
	w := &a.Wall
	p.Line("  wall time of an iteration: decode %.2f %%, sampling %.3f %%, rest of the step %.3f %%, moves %.3f %%, start %.3f %%, text %.3f %%, kv %.3f %%, radix %.3f %%, rest %.3f %%",
		100*w.Decode, 100*w.Sampling, 100*w.Step, 100*w.Moves, 100*w.Start, 100*w.Text, 100*w.KV, 100*w.Radix, 100*w.Rest)
	p.Line("  kv, radix and planner: %.3f %% of an iteration, %.0f calls of kv and radix; not decode: %.2f %%", 100*a.Core, w.CoreCalls, 100*a.NonDecode)
	shares(p, fmt.Sprintf("  CPU of the engine loop (%.1f %% of %.1f s sampled, which are %.0f %% of the kernel's count):", 100*a.CPU.EngineLoop, a.CPU.Seconds, 100*a.CPU.Coverage), a.CPU.Loop)
	shares(p, "  CPU of the engine loop outside of steps:", a.CPU.Outside)
	shares(p, "  CPU of the process:", a.CPU.Process)
	for _, f := range a.Files {
		p.Line("  wrote %s", f)
	}
}

func shares(p *printer.Printer, title string, all []Share) {
	for _, s := range all {
		title += fmt.Sprintf(" %s %.2f %%,", s.Name, 100*s.Ratio)
	}
	p.Line("%s", title[:len(title)-1])
}
