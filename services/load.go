package services

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/arrival"
	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/provenance"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/replay"
	"github.com/cadence-slo/cadence/bench/report"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/streams"
	"golang.org/x/term"
)

// LoadCmd offers a workload to a server.
type LoadCmd struct {
	URL       string        `help:"server without /v1: http:// or https://host:port" default:"http://127.0.0.1:8080" name:"url"`
	APIKey    string        `help:"bearer token" name:"api-key"`
	Model     string        `help:"model; empty: the first that the server lists"`
	Endpoint  string        `help:"completions or chat" enum:"completions,chat" default:"completions"`
	Prompts   string        `help:"prompts as token ids, as text of one word for each, or auto: ids where the server takes them" enum:"auto,ids,text" default:"auto"`
	TokenFrom int           `help:"least token id in prompts" default:"1000"`
	TokenTo   int           `help:"token ids in prompts are less than this" default:"4000"`
	Probe     bool          `help:"send one short request first, to see what the server takes" default:"true" negatable:""`
	Answers   string        `help:"exact: answers have the workload's length (max_tokens with ignore_eos); cap: max_tokens is the workload's cap and the model ends where it ends" enum:"exact,cap" default:"exact"`
	KeepAlive bool          `help:"use connections again; not for a server that closes them without saying so" default:"true" negatable:"" env:"CADENCE_LOAD_KEEP_ALIVE"`
	Timeout   time.Duration `help:"the client's own limit, from the moment of sending" default:"2m"`

	Workload string        `help:"what is offered: a name, a file, a trace with times of its own (see cadence workload --help), or requests:NATS_URL or requests:DATA_DIR with what a cadence was asked for (its streams; of a stopped one its directory; ?pool=NAME)" default:"seed"`
	Arrivals string        `help:"arrival process: poisson, gamma:cv=2, onoff:on=10s,off=20s,low=0.2, ramp:from=0.5,to=2 or constant; a trace has its own" default:"poisson"`
	Rate     float64       `help:"requests/s in the mean; a trace has its own" default:"1"`
	Length   time.Duration `help:"how long requests arrive; 0: to the end of a trace" default:"1m"`
	Seed     uint64        `help:"seed of arrivals and requests" default:"1"`
	Warmup   time.Duration `help:"beginning that is recorded but not counted"`
	Tail     time.Duration `help:"end that is recorded but not counted"`
	Drain    time.Duration `help:"how long after --length answers are waited for; what is open then is censored" default:"30s"`

	SLO       []string      `help:"objective: [CLASS:]ttft=…,tpot=…,e2e=…; once for each class; without a class, for all others (default: the workload's own)" name:"slo" sep:"none" placeholder:"SLO"`
	SendSLO   bool          `help:"tell the server each request's E2E objective (X-SLO-E2E-Ms)" name:"send-slo"`
	LagBudget time.Duration `help:"how far the generator may be behind its schedule; beyond, the run is invalid" default:"250ms"`

	Metrics string `help:"host:port of a cadence's metrics (its --metrics-listen): what its workers count goes into the record" placeholder:"ADDRESS"`
	Out     string `help:"directory for the records (run.json, requests.parquet, requests.jsonl); what an earlier run left there is replaced" type:"path" placeholder:"DIR"`
	Arm     string `help:"what is measured, for reports that compare" default:"load"`
	ITL     bool   `help:"keep the times between tokens" default:"true" negatable:"" name:"itl"`
	JSON    bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (LoadCmd) Help() string {
	return `Requests arrive on an open loop: each is sent at its time, however many are outstanding, and its latency counts from then. Every
request that was offered is in the books and in the denominator of goodput: in time, late, shed, timed out, censored (open when
the run ended) or failed. Ctrl-C ends the run early, with a report of what there is. A run whose generator fell behind its
schedule is invalid, and the exit status is 1.

Examples:
  cadence load --rate 4 --slo e2e=4s
  cadence load --url http://127.0.0.1:8000 --endpoint chat --workload shared --rate 2 --length 5m --warmup 30s --tail 15s
  cadence load --workload seed --arrivals gamma:cv=3 --rate 8 --seed 2 --slo ttft=500ms,e2e=4s --send-slo --out runs/burst
  cadence load --workload "azure:AzureLLMInferenceTrace_conv.csv?from=10m&length=5m" --length 0 --json
  cadence load --workload requests:nats://127.0.0.1:4222 --length 0 --url http://127.0.0.1:8081
  cadence load --slo ttft=1s --slo gold:ttft=300ms,e2e=2s --workload elastic-mixed --out runs/mixed`
}

// ErrInvalidRun is returned for a run that says nothing about the server.
var ErrInvalidRun = errors.New("the run is invalid")

// Run implements the command.
func (c *LoadCmd) Run(ctx context.Context, g *Globals) (err error) {
	trial, err := c.trial(ctx, g)
	if err != nil {
		return err
	}
	defer trial.Client.Close()
	// Whatever can be wrong beforehand is, before an earlier run's records are gone.
	if err := trial.Validate(); err != nil {
		return err
	}
	var before pipeline.Counters
	if c.Metrics != "" {
		if before, err = pipeline.ReadCounters(ctx, c.Metrics); err != nil {
			return err
		}
	}
	var rows []record.Request
	trial.Sink = func(r *record.Request) error { rows = append(rows, *r); return nil }
	var books *record.Writer
	if c.Out != "" {
		if books, err = record.Create(c.Out, true); err != nil {
			return err
		}
		trial.Sink = books.Add
	}
	run, err := c.measure(ctx, g, trial, before)
	if books != nil {
		if err = errors.Join(err, books.Close(run)); err == nil {
			rows, err = record.Requests(c.Out)
		}
	}
	if err != nil {
		return err
	}
	summary := stat.Summarize(run, rows, nil)
	if c.JSON {
		err = printJSON(g.Out, struct {
			Run     *record.Run  `json:"run"`
			Summary stat.Summary `json:"summary"`
		}{run, summary})
	} else {
		err = load.Write(g.Out, run, &summary)
	}
	if err == nil && !run.Valid() {
		err = ErrInvalidRun
	}
	return err
}

// measure runs the trial, and reads the workers' counters after it.
func (c *LoadCmd) measure(ctx context.Context, g *Globals, trial *load.Trial, before pipeline.Counters) (*record.Run, error) {
	finish := liveLine(g.Err, trial)
	run, err := trial.Measure(ctx)
	finish()
	if err != nil || c.Metrics == "" {
		return run, err
	}
	// An interrupted run has its counters, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	after, err := pipeline.ReadCounters(ctx, c.Metrics)
	if err != nil {
		return nil, err
	}
	counted := after.Less(before)
	run.PromptTokens, run.CachedTokens, run.Preemptions = int64(counted.Prompt), int64(counted.Cached), int64(counted.Preemptions)
	return run, nil
}

// trial makes what the flags say, asking the server what it takes.
func (c *LoadCmd) trial(ctx context.Context, g *Globals) (*load.Trial, error) {
	cfg := load.DefaultClientConfig()
	cfg.URL, cfg.APIKey, cfg.Timeout = c.URL, c.APIKey, c.Timeout
	if !c.KeepAlive {
		cfg.MaxIdle = 0
	}
	vocab, err := workload.NewVocabulary(c.TokenTo, func(id int32) bool { return int(id) < c.TokenFrom })
	if err != nil {
		return nil, fmt.Errorf("token-from and token-to: %w", err)
	}
	source, err := openOffer(ctx, g, c.Workload, vocab, c.Seed)
	if err != nil {
		return nil, err
	}
	machine, err := json.Marshal(pipeline.ThisMachine(g.Version))
	if err != nil {
		return nil, err
	}
	t := &load.Trial{Source: source, Drain: c.Drain, NoITL: !c.ITL, Run: record.Run{
		On: c.URL, Arm: c.Arm, Seed: c.Seed, Length: c.Length, Warmup: c.Warmup, Tail: c.Tail, LagBudget: c.LagBudget,
		Build: g.Version, Sources: provenance.Sources(), Machine: machine,
	}}
	if c.Out != "" {
		t.Run.ID = filepath.Base(c.Out)
	}
	if _, timed := source.(workload.Timed); !timed {
		process, err := arrival.Parse(c.Arrivals)
		if err != nil {
			return nil, err
		}
		if !(c.Rate > 0) {
			return nil, fmt.Errorf("%w: rate is %v, want more than 0", load.ErrConfig, c.Rate)
		}
		t.Arrivals, t.Run.Arrivals, t.Run.Rate = process.Times(c.Seed, c.Rate, c.Length), process.String(), c.Rate
	}
	if t.Run.SLOs, err = objectives(source, c.SLO); err != nil {
		return nil, err
	}
	if c.Model == "" {
		models, err := load.Models(ctx, &cfg)
		if err == nil && len(models) == 0 {
			err = fmt.Errorf("%w: it lists no model", load.ErrServer)
		}
		if err != nil {
			return nil, fmt.Errorf("asking for a model, for --model is not set: %w", err)
		}
		c.Model = models[0]
	}
	form := &load.Form{Endpoint: c.Endpoint, Model: c.Model, Text: c.Prompts == "text", Capped: c.Answers == "cap", Name: "load"}
	if c.SendSLO {
		form.Deadlines = t.Run.SLOs
	}
	if t.Client, err = load.NewClient(cfg); err != nil {
		return nil, err
	}
	if t.Form = form; !c.Probe {
		return t, nil
	}
	if t.Form, err = load.Probe(ctx, t.Client, form, vocab); err != nil {
		return nil, err
	}
	if t.Form.Text && !form.Text {
		if c.Prompts == "ids" {
			return nil, fmt.Errorf("%w: it takes no token ids", load.ErrServer)
		}
		g.Log.Info("the server takes no token ids, prompts are sent as text")
	}
	return t, nil
}

// openOffer opens a workload, or what stands in the REQUESTS of a cadence.
func openOffer(ctx context.Context, g *Globals, name string, vocab workload.Vocabulary, seed uint64) (_ workload.Source, err error) {
	where, ok := strings.CutPrefix(name, "requests:")
	if !ok {
		return workload.OpenSource(name, vocab, seed)
	}
	where, query, _ := strings.Cut(where, "?")
	pool, ok := strings.CutPrefix(query, "pool=")
	if query != "" && !ok || where == "" {
		return nil, fmt.Errorf("%w: workload is %q, want requests:NATS_URL or requests:DATA_DIR, with ?pool=NAME behind it or nothing", load.ErrConfig, name)
	}
	cfg := streams.DefaultConfig()
	cfg.URL = where
	var server *streams.Server
	if !strings.Contains(where, "://") {
		cfg.URL, where = "", filepath.Join(where, "nats")
		if _, err := os.Stat(where); err != nil {
			return nil, fmt.Errorf("%w: %w", load.ErrConfig, err)
		}
		if server, err = streams.StartServer(streams.ServerConfig{Dir: where, Durability: streams.DurableProcess}, g.Log); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := streams.Connect(ctx, cfg, server, g.Log, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return replay.Open(ctx, client, cmp.Or(pool, "default"))
}

// objectives are those of flags: for a class that they do not name, what they say for all, or else the workload's own.
func objectives(source workload.Source, flags []string) (map[string]record.SLO, error) {
	own := source.SLOs()
	if len(flags) == 0 {
		return own, nil
	}
	said, err := report.ParseSLOs(flags)
	if err != nil {
		return nil, err
	}
	every, all := said[report.Every]
	delete(said, report.Every)
	for class, slo := range own {
		if _, ok := said[class]; ok {
			continue
		}
		if said[class] = slo; all {
			said[class] = every
		}
	}
	if _, ok := said[""]; !ok && all {
		said[""] = every
	}
	return said, nil
}

// liveLine shows how a run goes in one line, on a terminal. finish removes it.
func liveLine(w io.Writer, t *load.Trial) (finish func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	const clear = "\r\x1b[K"
	t.Every = time.Second
	t.Progress = func(p load.Progress) { fmt.Fprint(w, clear, p.Line(t.Run.Length)) }
	return func() { fmt.Fprint(w, clear) }
}
