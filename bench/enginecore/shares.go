package enginecore

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/stack"
	"github.com/google/pprof/profile"
)

// Share is a part of some time, in [0, 1].
type Share struct {
	Name  string  `json:"name"`
	Ratio float64 `json:"ratio"`
}

// module is the beginning of the names of Cadence's functions.
const module = "github.com/cadence-slo/cadence/"

// What time is spent on.
const (
	decode   = "decode"
	sampling = "sampling"
	moves    = "moves"
	spelling = "text"
	planning = "planner"
	measured = "measuring"
)

// owners names code by the beginning of its functions' names; the first that fits counts.
var owners = stack.Owners{
	{module + "worker/llama.(*Context).Decode", decode},
	{module + "worker/llama.(*Context).Seq", moves},
	{module + "worker/llama.(*Model).", spelling},
	{module + "worker/llama.", decode}, // filling the batch, finding the logits
	{module + "worker/llamabackend.", "backend"},
	{module + "worker/mock.", "backend"},
	{module + "worker/sample.", sampling},
	{module + "worker/batch.", planning},
	{module + "worker/kv", "kv"},
	{module + "worker/radix", "radix"},
	{module + "worker/text.", spelling},
	{module + "worker.(*outbox)", "publishing"},
	{module + "worker.(*publisher)", "publishing"},
	{module + "worker.", "worker loop"},
	{module + "streams.", "publishing"},
	{module + "schema.", "publishing"},
	{"github.com/nats-io/nats.go", "publishing"},
	{"github.com/nats-io/nats-server", "stream server"},
	{"github.com/prometheus/", "metrics"},
	{module + "bench/", measured},
	{"runtime.gcBgMarkWorker", "garbage collector"},
	{"runtime.gcAssistAlloc", "garbage collector"},
	{"runtime.bgsweep", "garbage collector"},
	{"runtime.bgscavenge", "garbage collector"},
	{"runtime.mcall", "Go scheduler"},
	{"runtime.mstart", "Go scheduler"},
	{"runtime.findRunnable", "Go scheduler"},
}

// stackOf lists a sample's functions, the innermost first.
func stackOf(s *profile.Sample) (out []string) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				out = append(out, line.Function.Name)
			}
		}
	}
	return out
}

// cpuOf is a sample's CPU time: the last value of a CPU profile.
func cpuOf(s *profile.Sample) time.Duration {
	if len(s.Value) == 0 {
		return 0
	}
	return time.Duration(s.Value[len(s.Value)-1])
}

// engineLoop is the function in which all of the engine loop's work happens.
const engineLoop = module + "worker.(*engine).turn"

// backendStep is where the engine loop hands a step over.
const backendStep = module + "bench/enginecore.(*timedBackend).Step"

// CPU is where CPU time went, by the profile.
type CPU struct {
	Seconds float64 `json:"seconds"` // of the process
	Samples int64   `json:"samples"` // of it: a share of p has an error of √(p(1-p)/Samples)
	// Coverage is Seconds as a part of what the kernel counted for the process: where it is low, samples were lost (in long
	// calls of C) or C's own threads computed. 0 where the kernel does not tell.
	Coverage float64 `json:"coverage_ratio"`
	// EngineLoop is the engine loop's part of it. Loop says what of that was whose, Process what of the whole.
	EngineLoop float64 `json:"engine_loop_ratio"`
	Loop       []Share `json:"engine_loop"`
	Process    []Share `json:"process"`
	// Outside says whose the engine loop's time outside of Backend.Step was.
	Outside []Share `json:"outside_step"`
}

// spent reads a CPU profile of a time for which the kernel counted kernel.
func spent(p *profile.Profile, kernel time.Duration) CPU {
	var c CPU
	var all, loop, outside time.Duration
	process, engine, rest := map[string]time.Duration{}, map[string]time.Duration{}, map[string]time.Duration{}
	for _, s := range p.Sample {
		stack, cpu := stackOf(s), cpuOf(s)
		who := owners.Of(stack)
		all += cpu
		c.Samples += s.Value[0]
		process[who] += cpu
		if !slices.Contains(stack, engineLoop) {
			continue
		}
		loop += cpu
		engine[who] += cpu
		if !slices.Contains(stack, backendStep) {
			outside += cpu
			rest[who] += cpu
		}
	}
	c.Seconds, c.Coverage = all.Seconds(), ratio(all, kernel)
	c.EngineLoop = ratio(loop, all)
	c.Loop, c.Process, c.Outside = sharesOf(engine, loop), sharesOf(process, all), sharesOf(rest, outside)
	return c
}

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// sharesOf sorts shares, the largest first.
func sharesOf(m map[string]time.Duration, all time.Duration) []Share {
	out := []Share{}
	for name, d := range m {
		out = append(out, Share{name, ratio(d, all)})
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Ratio, a.Ratio), cmp.Compare(a.Name, b.Name)) })
	return out
}
