package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/provenance"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/scheduler/core"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/term"
)

// SimCmd simulates the pipeline.
type SimCmd struct {
	Workload string        `help:"what is offered: a name, a file, or a trace with times of its own (see cadence workload --help)" default:"seed"`
	Arrivals string        `help:"arrival process: poisson, gamma:cv=2, onoff:on=10s,off=20s,low=0.2, ramp:from=0.5,to=2 or constant; a trace has its own" default:"poisson"`
	Rate     []float64     `help:"requests/s in the mean, one or more; a trace has its own" default:"1"`
	Length   time.Duration `help:"how long requests arrive" default:"3m"`
	Requests int           `help:"the most requests that arrive; 0: no limit" default:"0"`
	Answers  string        `help:"what is sent as max_tokens. exact: the length of the answer (which an order sjf then knows as no server does of others); cap: the workload's cap, and the answer ends where it ends" enum:"exact,cap" default:"exact"`
	Seed     uint64        `help:"first seed of arrivals and requests" default:"1"`
	Seeds    int           `help:"how many seeds are run at each rate, from the first up" default:"1"`
	Warmup   time.Duration `help:"beginning that is recorded but not counted"`
	Tail     time.Duration `help:"end that is recorded but not counted"`
	Drain    time.Duration `help:"how long after --length answers are waited for; what is open then is censored" default:"1000h"`
	Timeout  time.Duration `help:"the client's own limit for a whole answer; 0: none" default:"0s"`
	Silence  time.Duration `help:"the client's limit for the first token, and from one to the next, as an HTTP client's read time-out; 0: none" default:"300s"`
	SLO      []string      `help:"objective: [CLASS:]ttft=…,tpot=…,e2e=…; once for each class; without a class, for all others (default: the workload's own)" name:"slo" sep:"none" placeholder:"SLO"`
	SendSLO  bool          `help:"tell the pipeline each request's E2E objective" name:"send-slo"`

	Profile       string   `help:"engine: seed-laptop, elasticserve, mock, or a file of cadence calibrate" default:"seed-laptop" placeholder:"NAME|FILE"`
	Workers       int      `help:"how many there are" default:"1"`
	KVTokens      int      `help:"tokens that all requests of a worker hold together; 0: the profile's" default:"0" name:"kv-tokens"`
	Sequences     int      `help:"sequence ids of an engine, at most 256; 0: the profile's" default:"0"`
	ContextTokens int      `help:"longest prompt + output of a request; 0: the profile's" default:"0"`
	Speed         []string `help:"change of the engines' speed: 60s=0.5 is half of it from then on; may be repeated" placeholder:"TIME=FACTOR"`

	Mode          string        `help:"when waiting requests join: continuous, static or fifo (see cadence worker --help)" enum:"continuous,static,fifo" default:"continuous"`
	StaticWait    time.Duration `help:"how long a static batch waits to be full" default:"50ms"`
	MaxBatch      int           `help:"requests that run at once on a worker; 0: the profile's" default:"0"`
	BatchTokens   int           `help:"most tokens fed in one step; 0: the profile's" default:"0"`
	ChunkTokens   int           `help:"most tokens of one prefill fed in one step; 0: the profile's" default:"0"`
	ITLTarget     time.Duration `help:"if not 0, prefill beside running requests is cut so that a step is predicted to take no longer" default:"0s" name:"itl-target"`
	PrefillOrder  string        `help:"who gets a step's tokens first: decode-first or prefill-first" enum:"decode-first,prefill-first" default:"decode-first"`
	KV            string        `help:"paged or contiguous" enum:"paged,contiguous" default:"paged" name:"kv"`
	KVOvercommit  float64       `help:"KV pages promised to running requests for each there is" default:"1" name:"kv-overcommit"`
	PrefixCache   bool          `help:"keep the KV of prompts for requests that begin alike" default:"true" negatable:""`
	CacheOutput   bool          `help:"keep the KV of answers, too" default:"true" negatable:""`
	PrefixSharing string        `help:"who finds whose prefixes: tenant or global" enum:"tenant,global" default:"tenant"`

	Order        string        `help:"who leaves the queue first: edf (earliest deadline; without deadlines as fcfs), fcfs or sjf (fewest max_tokens)" enum:"edf,fcfs,sjf" default:"edf"`
	MaxQueueWait time.Duration `help:"a request that waited as long for a worker is shed; 0: no limit" default:"0s"`
	MaxOpen      int           `help:"requests that the ingress holds at once; more are shed; 0: no limit" default:"0"`
	MaxWaiting   int           `help:"requests that may wait for their first token at once; more are shed; 0: no limit" default:"0"`
	Hop          time.Duration `help:"time of each of the four hops to a first token: to the scheduler, into the log, to the worker, to the client; 0: a pipeline that takes no time" default:"215us"`

	Arm    string `help:"what is simulated, for reports that compare; empty: the mode" default:""`
	Out    string `help:"directory for the records, one below runs/ for each run" type:"path" placeholder:"DIR"`
	JSONL  bool   `help:"write each run's requests as lines of JSON, too" name:"jsonl"`
	Events string `help:"file for the event log, lines of JSON; of a single run" type:"path" placeholder:"FILE"`
	ITL    bool   `help:"keep the times between tokens" default:"true" negatable:"" name:"itl"`
	Brief  bool   `help:"keep no records in memory: counts and quantiles only, for millions of requests"`
	JSON   bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (SimCmd) Help() string {
	return `The scheduler's and the workers' own code runs in virtual time, on engines whose steps take what a profile says; an hour of it takes
seconds. The same flags give the same records and the same event log, byte for byte. A profile is measured by cadence calibrate;
how far a simulation is to be believed, by cadence bench fidelity. Ctrl-C ends it early, with a report of what there is.

Examples:
  cadence sim --rate 1.4 --seeds 3 --slo e2e=4s
  cadence sim --workload seed --profile seed-laptop --mode fifo --no-prefix-cache --hop 0 --rate 0.6,1,1.4 --slo e2e=4s --warmup 25s --tail 5s
  cadence sim --rate 2.6 --slo e2e=4s --max-queue-wait 750ms --out runs/budget
  cadence sim --rate 1.9 --events events.jsonl --speed 60s=0.5 --speed 120s=1
  cadence sim --workers 100 --rate 190 --length 24h --requests 1000000 --no-itl --brief
  cadence sim --workload admitctl --order sjf --max-batch 2 --rate 22 --requests 200 --json`
}

// simulated is what a run came to.
type simulated struct {
	Run     *record.Run   `json:"run"`
	Summary *stat.Summary `json:"summary,omitempty"`
	Tally   *sim.Tally    `json:"tally,omitempty"`
}

// Run implements the command.
func (c *SimCmd) Run(ctx context.Context, g *Globals) error {
	p, err := openProfile(c.Profile)
	if err != nil {
		return err
	}
	plan, err := c.plan(p)
	if err != nil {
		return err
	}
	_, vocab, err := pipeline.MockModel()
	if err != nil {
		return err
	}
	if c.Seeds < 1 || c.Events != "" && c.Seeds*len(c.Rate) != 1 {
		return fmt.Errorf("%w: seeds is %d, want at least 1, and one seed and one rate with --events", ErrFlags, c.Seeds)
	}
	began, requests := time.Now(), 0
	var runs []simulated
	for _, rate := range c.Rate {
		for k := range c.Seeds {
			seed := c.Seed + uint64(k)
			source, err := workload.OpenSource(c.Workload, vocab, seed)
			if err != nil {
				return err
			}
			if _, timed := source.(workload.Timed); timed && len(c.Rate) > 1 {
				return fmt.Errorf("%w: rate has %d values, and %s has its own", ErrFlags, len(c.Rate), c.Workload)
			}
			got, n, err := c.simulate(ctx, g, source, p, plan, rate, seed)
			if err != nil {
				return err
			}
			runs, requests = append(runs, got), requests+n
			if ctx.Err() != nil {
				break
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	if c.JSON {
		return printJSON(g.Out, runs)
	}
	return c.write(g.Out, runs, requests, time.Since(began))
}

// plan is how the flags and the profile let a worker use its engine.
func (c *SimCmd) plan(p *profile.Profile) (batch.Config, error) {
	or := func(flag, own int) int {
		if flag != 0 {
			return flag
		}
		return own
	}
	l := &p.Limits
	w := worker.DefaultConfig()
	w.Mode, w.StaticWait, w.PageTokens, w.ITLTarget, w.PrefillOrder = c.Mode, c.StaticWait, l.PageTokens, c.ITLTarget, c.PrefillOrder
	info := worker.Info{ContextTokens: or(c.ContextTokens, l.ContextTokens), Sequences: or(c.Sequences, l.Sequences),
		KVCells: or(c.KVTokens, l.KVTokens), BatchTokens: l.BatchTokens, Sharing: true}
	w.MaxBatch, w.BatchTokens, w.ChunkTokens = c.MaxBatch, c.BatchTokens, or(c.ChunkTokens, l.ChunkTokens)
	if w.MaxBatch == 0 { // the profile's, on an engine that may be smaller
		w.MaxBatch = min(l.MaxBatch, info.Sequences, or(max(0, c.BatchTokens), l.BatchTokens))
	}
	w.KV, w.KVOvercommit, w.PrefixCache, w.CacheOutput = c.KV, c.KVOvercommit, c.PrefixCache, c.CacheOutput
	if err := w.Validate(); err != nil {
		return batch.Config{}, err
	}
	if err := w.Fits(info); err != nil {
		return batch.Config{}, err
	}
	return w.Planner(info), nil
}

// config is one run.
func (c *SimCmd) config(source workload.Source, p *profile.Profile, plan batch.Config, rate float64, seed uint64) (sim.Config, string, error) {
	cfg := sim.Config{
		Source: source, Capped: c.Answers == "cap", Requests: c.Requests, Seed: seed, Profile: p, Workers: c.Workers, Batch: plan, ShareAll: c.PrefixSharing == "global",
		MaxQueueWait: c.MaxQueueWait, MaxOpen: c.MaxOpen, MaxWaiting: c.MaxWaiting, Deadlines: c.SendSLO, ClientTimeout: c.Timeout, ReadTimeout: c.Silence,
		Latency: sim.Latency{Request: c.Hop, Append: c.Hop, Dispatch: c.Hop, Token: c.Hop},
		Length:  c.Length, Warmup: c.Warmup, Tail: c.Tail, Drain: c.Drain, KeepITL: c.ITL,
	}
	var err error
	if cfg.Order, err = core.OrderOf(c.Order); err != nil {
		return cfg, "", err
	}
	for _, text := range c.Speed {
		at, factor, ok := strings.Cut(text, "=")
		when, err := time.ParseDuration(at)
		f, err2 := strconv.ParseFloat(factor, 64)
		if err = errors.Join(err, err2); !ok || err != nil {
			return cfg, "", fmt.Errorf("%w: speed is %q, want TIME=FACTOR, as in 60s=0.5", ErrFlags, text)
		}
		cfg.Speeds = append(cfg.Speeds, sim.Speed{At: when, Factor: f})
	}
	if cfg.SLOs, err = objectives(source, c.SLO); err != nil {
		return cfg, "", err
	}
	if timed, ok := source.(workload.Timed); ok {
		cfg.Arrivals = timed.Arrivals()
		return cfg, "trace", nil
	}
	process, err := arrival.Parse(c.Arrivals)
	if err == nil && !(rate > 0) {
		err = fmt.Errorf("%w: rate is %v, want more than 0", ErrFlags, rate)
	}
	if err != nil {
		return cfg, "", err
	}
	cfg.Arrivals = process.Times(seed, rate, c.Length)
	return cfg, process.String(), nil
}

// traced is the rate of the arrivals of a trace that will be offered.
func traced(cfg *sim.Config) float64 {
	n, length := 0, cfg.Length
	for at := range cfg.Arrivals {
		if at >= length {
			break
		}
		if cfg.Requests > 0 && n == cfg.Requests {
			length = at
			break
		}
		n++
	}
	return float64(n) / max(length.Seconds(), 1e-9)
}

// simulate runs one rate with one seed, and returns how many requests were offered.
func (c *SimCmd) simulate(ctx context.Context, g *Globals, source workload.Source, p *profile.Profile, plan batch.Config, rate float64, seed uint64) (out simulated, n int, err error) {
	cfg, arrivals, err := c.config(source, p, plan, rate, seed)
	if err != nil {
		return out, 0, err
	}
	if _, timed := source.(workload.Timed); timed {
		rate = traced(&cfg)
	}
	arm := c.Arm
	if arm == "" {
		arm = c.Mode
		if plan.PrefixCache {
			arm += "+cache"
		}
	}
	id := fmt.Sprintf("%s-%g-%d", arm, rate, seed)
	var rows []record.Request
	tally := sim.NewTally(&record.Run{SLOs: cfg.SLOs})
	var events *os.File
	if c.Events != "" {
		if events, err = os.Create(c.Events); err != nil {
			return out, 0, err
		}
		cfg.Events = events
	}
	var books *record.Writer
	if c.Out != "" {
		if books, err = record.Create(filepath.Join(c.Out, "runs", id), c.JSONL); err != nil {
			if events != nil {
				err = errors.Join(err, events.Close())
			}
			return out, 0, err
		}
	}
	cfg.Sink = func(r *record.Request) error {
		n++
		if c.Brief {
			tally.Add(r)
		} else {
			rows = append(rows, *r)
		}
		if books != nil {
			return books.Add(r)
		}
		return nil
	}
	var finish func()
	cfg.Progress, finish = simProgress(g.Err, fmt.Sprintf("%s, %g/s, seed %d", arm, rate, seed), c.Length)
	run, err := sim.Run(ctx, cfg)
	finish()
	if events != nil {
		err = errors.Join(err, events.Close())
	}
	if err == nil {
		run.ID, run.Arm, run.Rate, run.Arrivals, run.Time = id, arm, rate, arrivals, time.Now().UTC()
		run.Build, run.Sources, run.Args = g.Version, provenance.Sources(), c.args(plan)
	}
	if books != nil {
		err = errors.Join(err, books.Close(run))
	}
	if err != nil {
		return out, 0, err
	}
	out.Run = run
	if c.Brief {
		out.Tally = tally
	} else {
		s := stat.Summarize(run, rows, nil)
		out.Summary = &s
	}
	return out, n, nil
}

// args tell what was simulated, for the record.
func (c *SimCmd) args(plan batch.Config) []string {
	return []string{
		fmt.Sprintf("--workers=%d", c.Workers), "--answers=" + c.Answers, fmt.Sprintf("--mode=%s", plan.Mode), fmt.Sprintf("--max-batch=%d", plan.MaxBatch),
		fmt.Sprintf("--kv-tokens=%d", plan.KVPages*plan.PageTokens), fmt.Sprintf("--sequences=%d", plan.Sequences), fmt.Sprintf("--batch-tokens=%d", plan.BatchTokens),
		fmt.Sprintf("--chunk-tokens=%d", plan.ChunkTokens), fmt.Sprintf("--context-tokens=%d", plan.ContextTokens), fmt.Sprintf("--static-wait=%v", c.StaticWait),
		fmt.Sprintf("--itl-target=%v", c.ITLTarget), "--prefill-order=" + c.PrefillOrder, "--kv=" + c.KV, fmt.Sprintf("--kv-overcommit=%g", c.KVOvercommit),
		fmt.Sprintf("--prefix-cache=%t", plan.PrefixCache), fmt.Sprintf("--cache-output=%t", plan.CacheOutput), "--prefix-sharing=" + c.PrefixSharing,
		"--order=" + c.Order, fmt.Sprintf("--max-queue-wait=%v", c.MaxQueueWait),
		fmt.Sprintf("--max-open=%d", c.MaxOpen), fmt.Sprintf("--max-waiting=%d", c.MaxWaiting), fmt.Sprintf("--hop=%v", c.Hop), fmt.Sprintf("--timeout=%v", c.Timeout),
		fmt.Sprintf("--silence=%v", c.Silence), fmt.Sprintf("--send-slo=%t", c.SendSLO), "--speed=" + strings.Join(c.Speed, ","),
	}
}

// write prints the table.
func (c *SimCmd) write(w io.Writer, runs []simulated, requests int, took time.Duration) error {
	p := &printer.Printer{W: w}
	t := p.Table("run", "offered", "answered", "in time", "shed", "other", "goodput/s", "in time of all", "TTFT p50", "p99", "E2E p50", "p99", "cached", "preempted")
	ms := func(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
	for _, r := range runs {
		cached := float64(r.Run.CachedTokens) / max(1, float64(r.Run.PromptTokens))
		row := func(offered, good int, o map[record.Outcome]int, ttft50, ttft99, e2e50, e2e99 time.Duration) {
			other := o[record.Timeout] + o[record.Censored] + o[record.Error]
			measured := stat.Measured(r.Run).Seconds()
			t.AppendRow(table.Row{r.Run.ID, offered, o[record.OK], good, o[record.Shed], other, fmt.Sprintf("%.3f", float64(good)/measured),
				fmt.Sprintf("%.1f %%", 100*float64(good)/max(1, float64(offered))), ms(ttft50), ms(ttft99), ms(e2e50), ms(e2e99),
				fmt.Sprintf("%.0f %%", 100*cached), r.Run.Preemptions})
		}
		if x := r.Tally; x != nil {
			row(x.Offered, x.Good, x.Outcomes, x.TTFT(0.5), x.TTFT(0.99), x.E2E(0.5), x.E2E(0.99))
		} else {
			s := r.Summary
			row(s.Offered, s.Good, s.Outcomes, s.TTFT.P50, s.TTFT.P99, s.E2E.P50, s.E2E.P99)
		}
	}
	p.Render(t)
	for _, r := range runs {
		if r.Run.Partial {
			p.Line("%s was stopped after %v: what there is counts, requests that were open are censored.", r.Run.ID, r.Run.Wall.Round(time.Millisecond))
		}
	}
	line := fmt.Sprintf("%d requests in %.3g s of real time, %.0f a second", requests, took.Seconds(), float64(requests)/took.Seconds())
	if peak := peakMemory(); peak > 0 {
		line += fmt.Sprintf("; at most %d MiB of memory", peak>>20)
	}
	p.Line("%s.", line)
	return p.Err
}

// peakMemory is the most that this process has had resident, 0 where the system does not tell.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}

// simProgress shows how a run goes in one line, on a terminal. finish removes it.
func simProgress(w io.Writer, what string, length time.Duration) (show func(sim.Progress), finish func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, func() {}
	}
	const clear = "\r\x1b[K"
	began := time.Now()
	last := began
	show = func(p sim.Progress) {
		now := time.Now()
		if now.Sub(last) < 100*time.Millisecond {
			return
		}
		last = now
		fmt.Fprintf(w, "%s%s: %v of %v, %d requests, %.0f a second, %d open", clear, what, p.Now.Truncate(time.Second), length, p.Done,
			float64(p.Done)/now.Sub(began).Seconds(), p.Offered-p.Done)
	}
	return show, func() { fmt.Fprint(w, clear) }
}
