package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cadence-slo/cadence/bench/workload"
)

// Trial is llama-server in one setting, on a workload's closed loop with all slots busy.
type Trial struct {
	Args       []string `json:"args"`
	OutputRate float64  `json:"output_tokens_per_second"` // the best of its blocks; 0: it did not run
	Kept       bool     `json:"kept"`
	Err        string   `json:"error,omitempty"`
}

// change is one way in which llama-server can be better or worse, by workload and machine.
type change struct {
	without, with []string
}

// changes are tried one after the other, each on top of what was kept. Continuous batching and the prompt cache are on by
// default.
var changes = []change{
	{without: []string{"--kv-unified"}, with: []string{"--no-kv-unified"}}, // each slot has cells of its own
	{with: []string{"--flash-attn", "off"}},                                // auto: on, where the model can
	{with: []string{"--cache-ram", "0"}},                                   // no copies of idle slots' cells in memory
}

// apply returns args with a change.
func (c *change) apply(args []string) []string {
	out := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return slices.Contains(c.without, a) })
	return append(out, c.with...)
}

// tune finds the better settings of llama-server for a workload.
func (r *engineRun) tune(ctx context.Context, g *workload.Generator) ([]string, []Trial, error) {
	best := []string{"--kv-unified"}
	if !r.o.Tune {
		return best, nil, nil
	}
	tried := changes
	if r.o.Quick {
		tried = changes[:1]
	}
	seed := r.next()
	saying := func(n int) error {
		return r.say("%s: llama-server, setting %d of %d", g.Spec().Name, n, len(tried)+1)
	}
	if err := saying(1); err != nil {
		return nil, nil, err
	}
	first := r.try(ctx, g, seed, best)
	if first.OutputRate == 0 {
		return nil, nil, errors.Join(fmt.Errorf("peer: llama-server %v: %s", best, first.Err), ctx.Err())
	}
	first.Kept = true
	trials := []Trial{first}
	rate := first.OutputRate
	for i := range tried {
		if err := saying(i + 2); err != nil {
			return nil, nil, err
		}
		t := r.try(ctx, g, seed, tried[i].apply(best))
		if t.Kept = t.OutputRate > rate; t.Kept {
			rate, best = t.OutputRate, t.Args
		}
		trials = append(trials, t)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	return best, trials, nil
}

// try measures one setting: the first block warms up, the better of two more counts.
func (r *engineRun) try(ctx context.Context, g *workload.Generator, seed uint64, args []string) Trial {
	t := Trial{Args: args}
	fail := func(err error) Trial {
		t.OutputRate, t.Err = 0, err.Error()
		r.o.Log.Warn("llama-server tried in vain", "args", args, "error", err)
		return t
	}
	s, theirs, err := r.startPeer(ctx, args)
	if err != nil {
		return fail(err)
	}
	most := r.report.Slots
	for i := range uint64(3) {
		b, err := theirs.closed(ctx, g.Reseed(seed<<8+i), "try", most, r.requests(most))
		if err != nil {
			return fail(errors.Join(err, stopPeer(s, theirs)))
		}
		if sum := summarize(b); i > 0 {
			t.OutputRate = max(t.OutputRate, sum.OutputRate)
		}
	}
	if err := stopPeer(s, theirs); err != nil {
		return fail(err)
	}
	r.o.Log.Info("llama-server tried", "args", args, "output_tokens_per_s", fmt.Sprintf("%.1f", t.OutputRate))
	return t
}
