package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// loadCompose reads docker-compose.yml as `docker compose config` does: schema, interpolation, references.
func loadCompose(t *testing.T, env ...string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")},
		cli.WithWorkingDirectory(root), cli.WithEnv(env), cli.WithResolvedPaths(true), cli.WithNormalization(true), cli.WithConsistency(true))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestComposeFile(t *testing.T) {
	p := loadCompose(t)
	for _, name := range []string{"nats", "clickhouse", "ingress", "scheduler", "worker", "analytics", "trainer", "prometheus", "grafana"} {
		if _, ok := p.Services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range p.Services {
		if s.Image == "" || strings.HasSuffix(s.Image, ":latest") || !strings.Contains(s.Image, ":") {
			t.Errorf("%s: image %q is not pinned", name, s.Image)
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !isCadence(s) {
			continue
		}
		args := slices.Clone([]string(s.Command))
		for _, key := range sorted(s.Environment) {
			if s.Environment[key] == nil || !strings.HasPrefix(key, "CADENCE_") {
				t.Errorf("%s: environment %s", name, key)
				continue
			}
			flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, "CADENCE_")), "_", "-")
			args = append(args, "--"+flag+"="+*s.Environment[key])
		}
		// A variable that is no flag would be silently without effect; as a flag it is an error.
		if out, err := exec.Command(binary, append(args, "--help")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %v\n%s", name, args, err, out)
		}
	}
}

func isCadence(s types.ServiceConfig) bool { return s.Image == "cadence:local" }

// The services of the compose file run as processes, each with the environment that the file gives it: hosts and ports
// become loopback ones, NATS is cadence's own, ClickHouse the embedded one. A chat streams through them and shows up in
// ClickHouse.
func TestComposeServices(t *testing.T) {
	p := loadCompose(t, "CADENCE_MODEL=synth:tiny")
	natsAddr, dir := freeAddr(t), t.TempDir()
	d := &deployment{services: map[string]*service{}}
	d.site = site{t: t, natsURL: "nats://" + natsAddr, dataDir: filepath.Join(dir, "analytics")}
	d.order = []string{"nats"}
	d.services["nats"] = &service{args: []string{"nats", "--nats-listen", natsAddr, "--data-dir", filepath.Join(dir, "nats")}}
	moved := map[string]string{} // host:port in the file → here
	for name, s := range p.Services {
		for _, port := range s.Ports {
			moved[fmt.Sprintf("%s:%d", name, port.Target)] = freeAddr(t)
		}
	}
	moved["nats:4222"] = natsAddr
	for _, name := range startOrder(p) {
		s := p.Services[name]
		if !isCadence(s) {
			continue
		}
		var env []string
		for key, value := range s.Environment {
			if value == nil {
				t.Fatalf("%s: %s has no value", name, key)
			}
			v := *value
			switch key {
			case "CADENCE_CLICKHOUSE_URL", "CADENCE_MODEL_DIR": // the embedded engine, and the cache of the other tests
				continue
			case "CADENCE_LISTEN", "CADENCE_METRICS_LISTEN":
				_, port, err := net.SplitHostPort(v)
				if err != nil {
					t.Fatalf("%s: %s: %v", name, key, err)
				}
				addr, ok := moved[name+":"+port]
				if !ok {
					addr = freeAddr(t)
					moved[name+":"+port] = addr
				}
				moved["127.0.0.1:"+port+"@"+name] = addr
				v = addr
			default:
				for from, to := range moved {
					v = strings.ReplaceAll(v, from, to)
				}
			}
			env = append(env, key+"="+v)
		}
		state := name
		if name == "trainer" { // reads the engine that analytics runs
			state = "analytics"
		}
		env = append(env, "CADENCE_DATA_DIR="+filepath.Join(dir, state))
		d.services[name] = &service{args: s.Command, env: env}
		d.order = append(d.order, name)
	}
	d.url = "http://" + moved["ingress:8080"]
	for _, name := range d.order {
		// Compose's lines are JSON.
		s := d.services[name]
		var err error
		if s.p, err = launch(t, name, s.env, s.args...); err != nil {
			t.Fatal(err)
		}
		ready := "msg=ready"
		if slices.Contains(s.env, "CADENCE_LOG_FORMAT=json") {
			ready = `"msg":"ready"`
		}
		if err := said(s.p, ready); err != nil {
			t.Fatal(err)
		}
	}
	d.waitReady()
	for name, s := range p.Services { // the health checks of the file, with their addresses
		if s.HealthCheck == nil || !isCadence(s) || len(s.HealthCheck.Test) < 4 {
			continue
		}
		args := slices.Clone([]string(s.HealthCheck.Test[2:]))
		for from, to := range moved {
			if host, of, ok := strings.Cut(from, "@"); ok && of == name {
				args[len(args)-1] = strings.Replace(args[len(args)-1], host, to, 1)
			}
		}
		if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
			t.Errorf("health check of %s: %v: %v\n%s", name, args, err, out)
		}
	}
	r := d.client().Do(t.Context(), &load.Request{
		Path: "/v1/chat/completions", ClientID: "composed",
		Body: fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"Hello"}],"max_tokens":16,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`, d.model()),
	})
	if r.Outcome != load.OK || r.Usage == nil || r.Usage.CompletionTokens == 0 {
		t.Fatalf("%+v", r)
	}
	begin := time.Now()
	eventually(t, 30*time.Second, "the request is in ClickHouse", func() error {
		rows, err := d.query("SELECT toString(outcome) AS outcome, output_tokens FROM requests WHERE client_request_id = 'composed'")
		if err != nil {
			return err
		}
		if len(rows) != 1 || rows[0]["outcome"] != "finished" {
			return fmt.Errorf("rows %v", rows)
		}
		if n, err := number(rows[0], "output_tokens"); err != nil || int(n) != r.Usage.CompletionTokens {
			t.Fatalf("%v, %v; want %d tokens", rows, err, r.Usage.CompletionTokens)
		}
		return nil
	})
	t.Logf("a row in ClickHouse %v after the last byte", time.Since(begin).Round(time.Millisecond))
	d.stop()
}

// startOrder is an order in which every service comes after those that it depends on.
func startOrder(p *types.Project) []string {
	var order []string
	var visit func(name string)
	visit = func(name string) {
		if slices.Contains(order, name) {
			return
		}
		s := p.Services[name]
		for _, dep := range sorted(s.DependsOn) {
			visit(dep)
		}
		order = append(order, name)
	}
	for _, name := range sorted(p.Services) {
		visit(name)
	}
	return order
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
