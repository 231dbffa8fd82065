package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// CLI is the command line. Every flag is also CADENCE_<FLAG> in the environment and a key of the --config file.
type CLI struct {
	Config    kong.ConfigFlag `help:"YAML file with values for flags; flags and the environment come first" placeholder:"FILE"`
	LogLevel  slog.Level      `help:"least severe level logged: debug, info, warn or error" default:"info"`
	LogFormat string          `help:"form of log lines on standard error: text or json" enum:"text,json" default:"text"`

	Up        UpCmd        `cmd:"" help:"Run every service in this process, on an embedded NATS server and an embedded ClickHouse."`
	Ingress   IngressCmd   `cmd:"" help:"Run the OpenAI-compatible HTTP front."`
	Scheduler SchedulerCmd `cmd:"" help:"Run the scheduler of a pool."`
	Worker    WorkerCmd    `cmd:"" help:"Run a worker: one engine."`
	Analytics AnalyticsCmd `cmd:"" help:"Project events into ClickHouse."`
	Trainer   TrainerCmd   `cmd:"" help:"Make models of latencies of what requests took, and publish those that are not worse."`
	Nats      NatsCmd      `cmd:"" help:"Run the embedded NATS server alone, for services in other processes."`

	Query     QueryCmd     `cmd:"" help:"Ask ClickHouse: SQL or a named query."`
	Explain   ExplainCmd   `cmd:"" help:"Tell what was decided on one request and why, and what became of it."`
	Model     ModelCmd     `cmd:"" help:"Make, fetch or look at models."`
	Train     TrainCmd     `cmd:"" help:"Make one model of latencies, and publish it if it is not worse."`
	Predictor PredictorCmd `cmd:"" help:"List, show or roll back models of latencies."`
	Workload  WorkloadCmd  `cmd:"" help:"List, show or sample the workloads of experiments."`
	Bench     BenchCmd     `cmd:"" help:"Measure Cadence."`
	Report    ReportCmd    `cmd:"" help:"Make tables and figures from the records of runs."`
	Sim       SimCmd       `cmd:"" help:"Simulate the pipeline in virtual time: scheduler, batching, KV and prefix cache are the services' own code."`
	Load      LoadCmd      `cmd:"" help:"Offer a workload to any OpenAI-compatible server, on an open loop."`
	Calibrate CalibrateCmd `cmd:"" help:"Measure how fast an engine is, and make a profile of it for simulator and mock."`
	Gate      GateCmd      `cmd:"" help:"Look for regressions of the pipeline in 90 seconds, on the mock engine."`
	Ladder    LadderCmd    `cmd:"" help:"Compare arms at several rates, over seeds, in the simulator or on real services."`
	Deps      DepsCmd      `cmd:"" help:"Install the embedded ClickHouse engine into the cache."`
	Doctor    DoctorCmd    `cmd:"" help:"Check what this machine offers to Cadence."`
	Probe     ProbeCmd     `cmd:"" help:"Ask an HTTP address for status 200 (for health checks)."`
	Version   VersionCmd   `cmd:"" help:"Print the version."`
}

// Globals is what every command gets.
type Globals struct {
	Log     *slog.Logger
	Version string
	Out     io.Writer // results
	Err     io.Writer // progress
}

// parser is the command line's grammar, with the version for --help.
func parser(cli *CLI, out, errOut io.Writer, exit func(int)) (*kong.Kong, error) {
	return kong.New(cli,
		kong.Name("cadence"),
		kong.Description("SLO-aware LLM inference: an OpenAI-compatible endpoint that keeps its latency promise under overload.\n\n"+
			"Start with:\n\n  cadence up\n  curl -N http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"+
			"    -d '{\"model\":\"default\",\"stream\":true,\"max_tokens\":32,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n\n"+
			"Every flag is also CADENCE_<FLAG> in the environment and a key of the --config file."),
		kong.DefaultEnvars("CADENCE"),
		kong.Configuration(ConfigFile),
		kong.Vars{"data_dir": defaultDataDir()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 110}),
		kong.Writers(out, errOut),
		kong.Exit(exit),
	)
}

// Main parses arguments, runs the command until it ends or the process is told to stop, and returns the exit status.
func Main(args []string, version string, out, errOut io.Writer) int {
	var cli CLI
	cli.Bench.Overhead.Executable, cli.Bench.Overhead.Log = executable(), slog.New(slog.DiscardHandler)
	exited := -1
	k, err := parser(&cli, out, errOut, func(code int) { exited = code })
	if err != nil {
		fmt.Fprintln(errOut, "cadence:", err)
		return 1
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	cmd, err := k.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		fmt.Fprintf(errOut, "cadence: %v\n", err)
		fmt.Fprintf(errOut, "See `%s`.\n", helpFor(err))
		return 2
	}
	if os.Getenv("GOGC") == "" {
		// The live heap is small and most of what is allocated dies young: collecting it less often costs a few MB.
		debug.SetGCPercent(400)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	g := &Globals{Log: newLogger(errOut, cli.LogFormat, cli.LogLevel), Version: version, Out: out, Err: errOut}
	cmd.BindTo(ctx, (*context.Context)(nil))
	return exitStatus(cmd.Run(g), errOut)
}

// exitStatus says what went wrong, if anything did, and returns what the process ends with.
func exitStatus(err error, errOut io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "cadence: %v\n", err)
	var coded kong.ExitCoder
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}

// helpFor is the command that tells what may be said where parsing failed.
func helpFor(err error) string {
	words := []string{"cadence"}
	var pe *kong.ParseError
	if errors.As(err, &pe) && pe.Context != nil {
		for _, w := range strings.Fields(pe.Context.Command()) {
			if !strings.HasPrefix(w, "<") { // an argument
				words = append(words, w)
			}
		}
	}
	return strings.Join(append(words, "--help"), " ")
}

// executable is this program's path, or its name if that cannot be told.
func executable() string {
	exe, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return exe
}

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// defaultDataDir is where state is kept unless --data-dir says otherwise.
func defaultDataDir() string {
	if d := os.Getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "cadence")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ".cadence"
	}
	return filepath.Join(home, ".local", "share", "cadence")
}

// VersionCmd prints the version.
type VersionCmd struct{}

// Help implements kong.HelpProvider.
func (VersionCmd) Help() string { return "Example:\n  cadence version" }

// Run implements the command.
func (VersionCmd) Run(g *Globals) error {
	_, err := fmt.Fprintln(g.Out, "cadence", g.Version)
	return err
}
