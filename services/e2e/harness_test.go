package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/process"
	"github.com/cadence-slo/cadence/streams"
)

// startWithin is how long a service may take to be ready: embedded ClickHouse and the race for two cores included.
const startWithin = 60 * time.Second

// eventually asks until check returns nil, and fails the test with its last error after the given time.
func eventually(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(within)
	defer end.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-end.C:
			t.Fatalf("%s: not within %v: %v", what, within, err)
		case <-tick.C:
		}
	}
}

// freeAddr returns a loopback address that nobody listens on now.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// launch starts cadence with arguments and an environment; it is killed at the end of the test, and what it said is
// shown if the test failed.
func launch(t testing.TB, name string, env []string, args ...string) (*process.Process, error) {
	p, err := process.Start(process.Options{Name: name, Path: binary, Args: args, Env: env, Dir: t.TempDir()})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s (pid %d) said:\n%s", name, p.Pid(), p.Tail(60))
		}
	})
	return p, nil
}

// waitLine waits for a line that contains text.
func waitLine(p *process.Process, text string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	return p.WaitLine(ctx, func(l string) bool { return strings.Contains(l, text) })
}

// said waits for a line that contains text.
func said(p *process.Process, text string) error {
	_, err := waitLine(p, text)
	return err
}

// stopProcess asks a process to end, and wants code 0.
func stopProcess(t testing.TB, p *process.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// site is a running Cadence, whatever processes it is made of.
type site struct {
	t        testing.TB
	url      string // of the HTTP front
	natsURL  string
	dataDir  string // that the embedded ClickHouse is in
	upstream *process.Process
}

// startUp runs `cadence up` with an engine's flags.
func startUp(t testing.TB, args ...string) *site {
	t.Helper()
	addr := freeAddr(t)
	s := &site{t: t, natsURL: "nats://" + addr, dataDir: t.TempDir()}
	var err error
	s.upstream, err = launch(t, "up", nil, append([]string{"up", "--listen", "127.0.0.1:0", "--data-dir", s.dataDir, "--nats-listen", addr}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	const banner = "Listening on "
	line, err := waitLine(s.upstream, banner+"http://")
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(line, banner)
	s.url = strings.TrimSuffix(strings.Fields(url)[0], "/")
	s.waitReady()
	return s
}

// waitReady waits until the HTTP front takes requests.
func (s *site) waitReady() {
	s.t.Helper()
	eventually(s.t, startWithin, "ready", func() error { return s.get("/ready", nil) })
}

// get asks for a path of the HTTP front and decodes its JSON into v, if not nil. Any status but 200 is an error.
func (s *site) get(path string, v any) error { return getJSON(s.url+path, v) }

func getJSON(url string, v any) error {
	body, err := getText(url)
	if err != nil || v == nil {
		return err
	}
	return json.Unmarshal([]byte(body), v)
}

func getText(url string) (string, error) {
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return string(body), nil
}

// metric reads a sample without labels from a /metrics page.
func metric(url, name string) (float64, error) {
	page, err := getText(url)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", url, name)
}

// running is the number of requests that have got a first token and are not at their end.
func (s *site) running() (int, error) {
	var stats struct{ Running int }
	err := s.get("/stats", &stats)
	return stats.Running, err
}

// model is the name of the only model.
func (s *site) model() string {
	s.t.Helper()
	var list struct{ Data []struct{ ID string } }
	if err := s.get("/v1/models", &list); err != nil || len(list.Data) == 0 {
		s.t.Fatalf("models: %+v, %v", list, err)
	}
	return list.Data[0].ID
}

// client returns an HTTP client that keeps texts and event ids.
func (s *site) client() *load.Client {
	s.t.Helper()
	cfg := load.DefaultClientConfig()
	cfg.URL, cfg.KeepText, cfg.KeepEventIDs, cfg.Timeout = s.url, true, true, 90*time.Second
	c, err := load.NewClient(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// streamsClient connects to the site's NATS server.
func (s *site) streamsClient() *streams.Client {
	s.t.Helper()
	cfg := streams.DefaultConfig()
	cfg.URL, cfg.Name = s.natsURL, "e2e"
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	c, err := streams.Connect(ctx, cfg, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// query runs SQL with `cadence query` and returns its rows.
func (s *site) query(sql string) ([]map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "query", "--json", "--data-dir", s.dataDir, sql)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("cadence query: %w: %s", err, failed.Stderr)
	}
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(out))
	d.UseNumber()
	var rows []map[string]any
	if err := d.Decode(&rows); err != nil {
		return nil, fmt.Errorf("cadence query answered %.300q: %w", out, err)
	}
	return rows, nil
}

// number reads a column of a row: numbers of 64 bits may come as text.
func number(row map[string]any, column string) (int64, error) {
	v, ok := row[column]
	if !ok {
		return 0, fmt.Errorf("no column %s in %v", column, row)
	}
	return strconv.ParseInt(fmt.Sprint(v), 10, 64)
}

// service is one process of a deployment.
type service struct {
	args []string
	env  []string
	p    *process.Process
}

// deployment is a site with a process for each service.
type deployment struct {
	site
	services map[string]*service
	order    []string // of starting
}

// deploy starts NATS, analytics, scheduler, the named workers and an ingress, over an engine with the given flags. Each
// worker's metrics are at metricsURL.
func deploy(t testing.TB, workers []string, engine ...string) *deployment {
	t.Helper()
	natsAddr, listen, dir := freeAddr(t), freeAddr(t), t.TempDir()
	d := &deployment{services: map[string]*service{}}
	d.site = site{t: t, url: "http://" + listen, natsURL: "nats://" + natsAddr, dataDir: filepath.Join(dir, "analytics")}
	add := func(name string, args ...string) {
		d.services[name] = &service{args: args}
		d.order = append(d.order, name)
	}
	add("nats", "nats", "--nats-listen", natsAddr, "--data-dir", filepath.Join(dir, "nats"))
	add("analytics", "analytics", "--nats-url", d.natsURL, "--data-dir", d.dataDir, "--metrics-listen", freeAddr(t))
	add("scheduler", "scheduler", "--nats-url", d.natsURL, "--metrics-listen", freeAddr(t))
	for _, w := range workers {
		add(w, append([]string{"worker", "--nats-url", d.natsURL, "--name", w, "--metrics-listen", freeAddr(t)}, engine...)...)
	}
	// The ingress needs the engine's model, not its speed.
	front := []string{"ingress", "--nats-url", d.natsURL, "--listen", listen}
	for i := 0; i+1 < len(engine); i++ {
		if engine[i] == "--backend" || engine[i] == "--model" || engine[i] == "--tokenizer" {
			front = append(front, engine[i], engine[i+1])
		}
	}
	add("ingress", front...)
	for _, name := range d.order {
		d.start(name)
	}
	d.waitReady()
	return d
}

// start starts a service and waits until it says that it is ready.
func (d *deployment) start(name string) {
	d.t.Helper()
	if err := d.restart(name); err != nil {
		d.t.Fatal(err)
	}
}

// restart is start for goroutines that must not end the test.
func (d *deployment) restart(name string) error {
	s := d.services[name]
	p, err := launch(d.t, name, s.env, s.args...)
	if err != nil {
		return err
	}
	s.p = p
	return said(p, "msg=ready")
}

// kill ends a service at once (SIGKILL).
func (d *deployment) kill(name string) {
	d.t.Helper()
	if err := d.services[name].p.Kill(); err != nil {
		d.t.Fatal(err)
	}
}

// metricsURL is the /metrics page of a service.
func (d *deployment) metricsURL(name string) string {
	args := d.services[name].args
	for i := range args {
		if args[i] == "--metrics-listen" {
			return "http://" + args[i+1] + "/metrics"
		}
	}
	d.t.Fatalf("%s has no metrics", name)
	return ""
}

// stop ends every service in order, the last one started first.
func (d *deployment) stop() {
	d.t.Helper()
	for i := len(d.order) - 1; i >= 0; i-- {
		stopProcess(d.t, d.services[d.order[i]].p)
	}
}
