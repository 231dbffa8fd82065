package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker/llama"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// DoctorCmd checks what `cadence up` will need.
type DoctorCmd struct {
	Listen  string `help:"address that the HTTP front will take" default:"127.0.0.1:8080"`
	DataDir string `help:"directory of all state" type:"path" default:"${data_dir}"`
	ModelFlags
	NatsURL       string `help:"external NATS server to check; empty: the embedded one will be used" name:"nats-url"`
	ClickhouseURL string `help:"external ClickHouse server to check; empty: the embedded one will be used" name:"clickhouse-url"`
	JSON          bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (DoctorCmd) Help() string {
	return "Examples:\n  cadence doctor\n  cadence doctor --listen :9000 --model ./my.gguf\n  cadence doctor --nats-url nats://nats:4222 --json\n\nThe exit status is 1 if something would keep Cadence from starting."
}

// finding is one checked thing.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warn, fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// ErrDoctor is returned if something would keep Cadence from starting.
var ErrDoctor = errors.New("some checks failed")

// Run implements the command.
func (c *DoctorCmd) Run(ctx context.Context, g *Globals) error {
	findings := []finding{
		{"version", "ok", fmt.Sprintf("cadence %s, %s %s/%s, %d CPUs", g.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), ""},
		checkEngine(g),
		checkPort(c.Listen),
		checkDir("data directory", c.DataDir, 10<<30),
		checkModel(ctx, c.ModelFlags),
		checkClickHouse(ctx, c.ClickhouseURL, c.DataDir),
		checkNats(ctx, c.NatsURL, c.DataDir),
	}
	failed := false
	for _, f := range findings {
		failed = failed || f.Status == "fail"
	}
	if c.JSON {
		if err := printJSON(g.Out, findings); err != nil {
			return err
		}
	} else {
		t := newTable(g.Out)
		t.AppendHeader(table.Row{"check", "", "what", "what to do"})
		t.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: 70, WidthMaxEnforcer: text.WrapSoft}, {Number: 4, WidthMax: 50, WidthMaxEnforcer: text.WrapSoft}})
		for _, f := range findings {
			t.AppendRow(table.Row{f.Check, f.Status, f.Detail, f.Fix})
		}
		t.Render()
	}
	if failed {
		return ErrDoctor
	}
	return nil
}

func checkEngine(g *Globals) finding {
	const name = "llama.cpp"
	if !llama.Built {
		return finding{name, "warn", "this binary has only the mock engine", "run `make build` and use bin/cadence"}
	}
	err := llama.Init(g.Log, "")
	info := ""
	if err == nil {
		info, err = llama.SystemInfo()
	}
	if err != nil {
		return finding{name, "fail", err.Error(), ""}
	}
	return finding{name, "ok", info, ""}
}

func checkPort(addr string) finding {
	const name = "port"
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fix := "choose another --listen"
		if errors.Is(err, syscall.EADDRINUSE) {
			fix = "stop what listens there, or " + fix
		}
		return finding{name, "fail", err.Error(), fix}
	}
	if err := l.Close(); err != nil {
		return finding{name, "fail", err.Error(), ""}
	}
	return finding{name, "ok", addr + " is free", ""}
}

// checkDir tells whether a directory can be written and has the wanted room.
func checkDir(name, dir string, want uint64) finding {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return finding{name, "fail", err.Error(), "choose another --data-dir"}
	}
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return finding{name, "fail", err.Error(), "choose another --data-dir"}
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return finding{name, "fail", err.Error(), ""}
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return finding{name, "fail", err.Error(), ""}
	}
	free := fs.Bavail * uint64(fs.Bsize)
	detail := fmt.Sprintf("%s, %.1f GB free", dir, float64(free)/1e9)
	if free < want {
		return finding{name, "warn", detail, fmt.Sprintf("streams and tables may take up to %.0f GB", float64(want)/1e9)}
	}
	return finding{name, "ok", detail, ""}
}

func checkModel(ctx context.Context, m ModelFlags) finding {
	const name = "model"
	if m.Backend == backendMock {
		return finding{name, "ok", "the mock engine needs none", ""}
	}
	path, err := m.find(ctx, nil)
	if err != nil {
		return finding{name, "fail", err.Error(), "cadence model pull NAME, or --model PATH"}
	}
	st, err := os.Stat(path)
	if err != nil {
		return finding{name, "fail", err.Error(), ""}
	}
	return finding{name, "ok", fmt.Sprintf("%s, %.0f MB", path, float64(st.Size())/1e6), ""}
}

func checkClickHouse(ctx context.Context, url, dataDir string) finding {
	const name = "ClickHouse"
	if url != "" {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		conn, err := clickhouse.Open(ctx, url)
		if err != nil && !clickhouse.IsUnknownDatabase(err) {
			return finding{name, "fail", err.Error(), "check --clickhouse-url"}
		}
		if err == nil {
			defer conn.Close()
		}
		return finding{name, "ok", "external server answers", ""}
	}
	if _, err := clickhouse.Discover(filepath.Join(dataDir, "clickhouse")); err == nil {
		return finding{name, "warn", "an embedded engine runs on this data directory", "stop it before another `cadence up`"}
	}
	lib, err := clickhouse.FindLibrary()
	if err != nil {
		return finding{name, "fail", err.Error(), "cadence deps"}
	}
	return finding{name, "ok", fmt.Sprintf("embedded %s, %s", clickhouse.Version, lib), ""}
}

func checkNats(ctx context.Context, url, dataDir string) finding {
	const name = "NATS"
	if url != "" {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		cfg := streams.DefaultConfig()
		cfg.URL = url
		c, err := streams.Connect(ctx, cfg, nil, newLogger(os.Stderr, "text", 12), nil)
		if err != nil {
			return finding{name, "fail", err.Error(), "check --nats-url"}
		}
		defer c.Close()
		if _, err := c.JetStream().AccountInfo(ctx); err != nil {
			return finding{name, "fail", "JetStream: " + err.Error(), "start the server with JetStream"}
		}
		return finding{name, "ok", "external server answers, JetStream is on", ""}
	}
	if err := streams.CheckUnlocked(filepath.Join(dataDir, "nats")); err != nil {
		return finding{name, "warn", err.Error(), "stop the other `cadence`, or choose another --data-dir"}
	}
	return finding{name, "ok", "embedded", ""}
}
