package overhead

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/process"
)

// flagVariables is how variables that are flags of cadence begin. What is measured does not depend on them.
const flagVariables = "CADENCE_"

// child is the `cadence up` that is measured.
type child struct {
	p        *process.Process
	exe, dir string
	url      string // of its HTTP front
	nats     string
	pprof    string // host:port; empty: not offered
}

// startChild starts every service over an engine without cost and returns when it takes requests.
func startChild(ctx context.Context, o *Options, dir string) (*child, error) {
	natsAddr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	c := &child{exe: o.Executable, dir: dir, nats: "nats://" + natsAddr}
	args := []string{"up", "--backend", "mock", "--listen", "127.0.0.1:0", "--data-dir", dir, "--nats-listen", natsAddr,
		"--log-level", "warn", "--mock-prefill-rate", "0", "--mock-step", "0s", "--mock-step-per-seq", "0s",
		"--sequences", "64", "--kv-tokens", "65536", "--context-tokens", "4096"}
	if o.Profile != "" {
		if c.pprof, err = freeAddr(); err != nil {
			return nil, err
		}
		args = append(args, "--metrics-listen", c.pprof, "--pprof")
	}
	if c.p, err = process.Start(process.Options{Name: "cadence up", Path: o.Executable, Args: append(args, o.UpArgs...), Without: flagVariables}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	const banner = "Listening on "
	line, err := c.p.WaitLine(ctx, func(l string) bool { return strings.HasPrefix(l, banner+"http://") })
	if err != nil {
		if kill := c.p.Kill(); kill != nil {
			return nil, fmt.Errorf("%w; %w", err, kill)
		}
		return nil, err
	}
	c.url = strings.TrimSuffix(strings.Fields(line[len(banner):])[0], "/")
	return c, nil
}

// stop ends the child in order.
func (c *child) stop(log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := c.p.Stop(ctx)
	if said := c.p.Output(); strings.Contains(said, "level=ERROR") || strings.Contains(said, "level=WARN") {
		log.Warn("the services complained", "tail", c.p.Tail(20))
	}
	return err
}

// projected is the number of events that ClickHouse has.
func (c *child) projected(ctx context.Context) (int, error) {
	cmd := exec.CommandContext(ctx, c.exe, "query", "--json", "--data-dir", c.dir, "SELECT count() AS events FROM events")
	cmd.Env = process.Environ(flagVariables)
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("overhead: cadence query: %w%s", err, stderrOf(err))
	}
	var rows []struct {
		Events json.Number `json:"events"`
	}
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 1 {
		return 0, fmt.Errorf("overhead: cadence query answered %.200q: %w", out, err)
	}
	n, err := rows[0].Events.Int64()
	return int(n), err
}

func stderrOf(err error) string {
	if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as Output documents it
		return ": " + strings.TrimSpace(string(e.Stderr))
	}
	return ""
}

// freeAddr returns a loopback address that nobody listens on now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("overhead: finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
