package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/process"
)

// flagVariables is how variables that are flags of cadence begin. What is measured does not depend on them.
const flagVariables = "CADENCE_"

// StartLimit is how long a server may take to load its model.
const StartLimit = 5 * time.Minute

// Options says what to run.
type Options struct {
	Executable string   // cadence's own
	Args       []string // of cadence up, beyond addresses and state
	Analytics  bool     // run ClickHouse and the projector, too
	Log        *slog.Logger
}

// Pipeline is a running `cadence up`.
type Pipeline struct {
	URL string // of its HTTP front
	Ops string // host:port of its metrics

	p   *process.Process
	dir string // of its state; removed with it
	log *slog.Logger
}

// Start starts every service in a child process with a state of its own, and returns when it takes requests.
func Start(ctx context.Context, o Options) (*Pipeline, error) {
	ops, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cadence-bench-")
	if err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	args := append([]string{"up", "--listen", "127.0.0.1:0", "--data-dir", dir, "--log-level", "warn", "--metrics-listen", ops}, o.Args...)
	if !o.Analytics {
		args = append(args, "--no-analytics")
	}
	u := &Pipeline{Ops: ops, dir: dir, log: o.Log}
	if u.p, err = process.Start(process.Options{Name: "cadence up", Path: o.Executable, Args: args, Without: flagVariables}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeout(ctx, StartLimit)
	defer cancel()
	const banner = "Listening on "
	line, err := u.p.WaitLine(ctx, func(l string) bool { return strings.HasPrefix(l, banner+"http://") })
	if err != nil {
		return nil, errors.Join(err, u.p.Kill(), os.RemoveAll(dir))
	}
	u.URL = strings.TrimSuffix(strings.Fields(line[len(banner):])[0], "/")
	return u, nil
}

// Stop ends the child in order and removes its state.
func (u *Pipeline) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := u.p.Stop(ctx)
	if said := u.p.Output(); strings.Contains(said, "level=ERROR") || strings.Contains(said, "level=WARN") {
		u.log.Warn("the services complained", "tail", u.p.Tail(20))
	}
	return errors.Join(err, os.RemoveAll(u.dir))
}

// Flag is one argument with a number.
func Flag(name string, value int) []string { return []string{"--" + name, strconv.Itoa(value)} }

// FreeAddr returns a loopback address that nobody listens on now.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("pipeline: finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
