package workertest

import (
	"errors"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
)

// Request is one sequence to generate.
type Request struct {
	Prompt, Output []int32 // Output: generated before; goes on from there
	MaxNew         int
	Attempt        uint32
	Sampling       schema.Sampling
	IgnoreEOS      bool
	Logprobs       int32 // as in worker.Start
	Grammar        string
	Scope          string // of the prefix cache
	// Forced, if not nil, are the tokens that the sequence goes on with, whatever the backend says (teacher forcing).
	Forced []int32

	logits []float32 // of Forced, when they were said alone; nil if nobody asked
}

// Driver runs requests on a backend, step by step.
type Driver struct {
	B worker.Backend
	P *batch.Planner
	// OnRow, if not nil, sees each token that the backend chose, before it is committed: request and index among its
	// generated tokens.
	OnRow func(e *batch.Entry, row, request, index int, token int32)

	reqs  []Request
	out   [][]int32 // what the backend said, by request
	taken [][]int32 // what the sequences went on with, by request
	errs  []error
	done  int
	time  time.Duration

	// Preempted counts the preemptions so far.
	Preempted int
}

// PlannerConfig is how a planner uses all of a backend, with pages of 16 tokens.
func PlannerConfig(b worker.Backend) batch.Config {
	i := b.Info()
	c := batch.Config{PageTokens: 16, KVPages: i.KVCells / 16, Sequences: i.Sequences, MaxBatch: i.Sequences,
		BatchTokens: max(min(i.BatchTokens, 256), i.Sequences), ContextTokens: i.ContextTokens}
	c.ChunkTokens = c.BatchTokens
	c.PrefixCache = i.Sharing
	return c
}

// NewDriver returns a driver with nothing to do.
func NewDriver(t testing.TB, b worker.Backend, cfg batch.Config) *Driver {
	t.Helper()
	p, err := batch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for seq := range cfg.Sequences { // what another driver left in the backend's cells
		if err := b.Apply(batch.Move{Kind: batch.MoveTrim, Dst: batch.SeqID(seq)}); err != nil {
			t.Fatal(err)
		}
	}
	return &Driver{B: b, P: p}
}

// Generate runs requests at once and returns what the backend said for each.
func Generate(t testing.TB, b worker.Backend, reqs []Request) [][]int32 {
	t.Helper()
	d := NewDriver(t, b, PlannerConfig(b))
	d.Add(t, reqs...)
	for d.Step(t) {
	}
	for i, err := range d.errs {
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	return d.out
}

// Add adds requests; they are numbered in order of adding, from 0.
func (d *Driver) Add(t testing.TB, reqs ...Request) {
	t.Helper()
	for _, r := range reqs {
		id := batch.ID(len(d.reqs))
		d.reqs, d.out, d.taken, d.errs = append(d.reqs, r), append(d.out, nil), append(d.taken, nil), append(d.errs, nil)
		prompt := append(append([]int32{}, r.Prompt...), r.Output...)
		if err := d.P.Add(batch.Sequence{ID: id, Prompt: prompt, MaxNew: r.MaxNew, Scope: r.Scope}, d.now()); err != nil {
			t.Fatal(err)
		}
	}
}

// Done is how many requests have ended.
func (d *Driver) Done() int { return d.done }

// Output is what the backend said for a request, and why it failed.
func (d *Driver) Output(request int) ([]int32, error) { return d.out[request], d.errs[request] }

// Cancel ends a request.
func (d *Driver) Cancel(t testing.TB, request int) {
	t.Helper()
	d.apply(d.P.Cancel(batch.ID(request)))
	d.move(t)
}

// Step runs one step, if there is one.
func (d *Driver) Step(t testing.TB) bool {
	t.Helper()
	b := d.P.Plan(d.now())
	d.move(t)
	if b == nil {
		return false
	}
	d.Preempted += len(b.Preempted)
	rows := make([]batch.Row, len(b.Entries))
	var live []int
	for i := range b.Entries {
		e := &b.Entries[i]
		if e.Start {
			r := &d.reqs[e.ID]
			output := append(append([]int32{}, r.Output...), d.taken[e.ID]...)
			rows[i].Err = d.B.Start(e.Seq, &worker.Start{Attempt: r.Attempt, Prompt: r.Prompt, Output: output, MaxNew: r.MaxNew - len(d.taken[e.ID]),
				Sampling: r.Sampling, IgnoreEOS: r.IgnoreEOS, Logprobs: r.Logprobs, Grammar: r.Grammar})
		}
		if rows[i].Err == nil {
			live = append(live, i)
		}
	}
	part := batch.Batch{Step: b.Step}
	for _, i := range live {
		part.Entries = append(part.Entries, b.Entries[i])
	}
	part = part.Slice(0, len(part.Entries))
	got := make([]batch.Row, len(live))
	if len(live) > 0 {
		if err := d.B.Step(&part, got); err != nil {
			t.Fatalf("step %d: %v", b.Step, err)
		}
	}
	for k, i := range live {
		rows[i] = got[k]
		if e := &b.Entries[i]; e.Sample && rows[i].Err == nil && !rows[i].Wait {
			r, n := int(e.ID), len(d.out[e.ID])
			if d.OnRow != nil {
				d.OnRow(e, k, r, n, rows[i].Token)
			}
			d.out[r] = append(d.out[r], rows[i].Token)
			if f := d.reqs[r].Forced; f != nil {
				rows[i].Token = f[n]
			} else {
				rows[i].Stop = !d.reqs[r].IgnoreEOS && d.B.EOG(rows[i].Token)
			}
			d.taken[r] = append(d.taken[r], rows[i].Token)
		}
	}
	d.apply(d.P.Commit(rows, d.now()))
	d.move(t)
	if err := d.P.Check(); err != nil {
		t.Fatal(err)
	}
	return true
}

// now advances by one at each call: a clock that orders, and no more.
func (d *Driver) now() time.Duration {
	d.time++
	return d.time
}

func (d *Driver) move(t testing.TB) {
	t.Helper()
	for _, m := range d.P.Moves(nil) {
		if err := d.B.Apply(m); err != nil {
			t.Fatalf("move %+v: %v", m, err)
		}
	}
}

func (d *Driver) apply(outs []batch.Outcome) {
	for _, o := range outs {
		if !o.Kind.Ended() {
			continue
		}
		d.done++
		if o.Kind == batch.KindCancelled {
			o.Err = errors.New("cancelled")
		}
		d.errs[o.ID] = o.Err
	}
}
