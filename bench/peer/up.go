package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/process"
)

// flagVariables is how variables that are flags of cadence begin. What is measured does not depend on them.
const flagVariables = "CADENCE_"

// startLimit is how long a server may take to load its model.
const startLimit = 5 * time.Minute

// pipeline is a `cadence up`.
type pipeline struct {
	p   *process.Process
	url string
	ops string // host:port of its metrics
	dir string // of its state; removed with it
	log *slog.Logger
}

// pipelineOptions are what both comparisons set.
type pipelineOptions struct {
	executable string
	args       []string // of the engine
	analytics  bool
}

// startPipeline starts every service in a child process with a state of its own, and returns when it takes requests.
func startPipeline(ctx context.Context, o pipelineOptions, log *slog.Logger) (*pipeline, error) {
	ops, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cadence-peer-")
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	args := append([]string{"up", "--listen", "127.0.0.1:0", "--data-dir", dir, "--log-level", "warn", "--metrics-listen", ops}, o.args...)
	if !o.analytics {
		args = append(args, "--no-analytics")
	}
	u := &pipeline{ops: ops, dir: dir, log: log}
	if u.p, err = process.Start(process.Options{Name: "cadence up", Path: o.executable, Args: args, Without: flagVariables}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	const banner = "Listening on "
	line, err := u.p.WaitLine(ctx, func(l string) bool { return strings.HasPrefix(l, banner+"http://") })
	if err != nil {
		return nil, errors.Join(err, u.p.Kill(), os.RemoveAll(dir))
	}
	u.url = strings.TrimSuffix(strings.Fields(line[len(banner):])[0], "/")
	return u, nil
}

// stop ends the child in order.
func (u *pipeline) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := u.p.Stop(ctx)
	if said := u.p.Output(); strings.Contains(said, "level=ERROR") || strings.Contains(said, "level=WARN") {
		u.log.Warn("the services complained", "tail", u.p.Tail(20))
	}
	return errors.Join(err, os.RemoveAll(u.dir))
}

// flag is one argument with a number.
func flag(name string, value int) []string { return []string{"--" + name, strconv.Itoa(value)} }
