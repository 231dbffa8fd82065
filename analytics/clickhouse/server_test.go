package clickhouse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestServesOwnerAndReader(t *testing.T) {
	s := startServer(t, testOptions(t))
	conn, err := Open(t.Context(), s.DSN(), CreateDatabase())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Exec(t.Context(), "CREATE TABLE n (v UInt64) ENGINE = MergeTree ORDER BY v"); err != nil {
		t.Fatal(err)
	}
	batch, err := conn.PrepareBatch(t.Context(), "INSERT INTO n (v)")
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Append(uint64(1<<64 - 1)); err != nil {
		t.Fatal(err)
	}
	if err := batch.Send(); err != nil {
		t.Fatal(err)
	}

	found, err := Discover(s.path)
	if err != nil {
		t.Fatal(err)
	}
	if found != s.ReaderDSN() {
		t.Error("Discover does not return the reader's DSN")
	}
	reader, err := Open(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	var v uint64
	if err := reader.QueryRow(t.Context(), "SELECT v FROM n").Scan(&v); err != nil || v != 1<<64-1 {
		t.Errorf("v = %d, %v", v, err)
	}
	for _, statement := range []string{
		"INSERT INTO n VALUES (1)", "DROP TABLE n", "CREATE TABLE m (v Int8) ENGINE = Memory",
		"SELECT * FROM file('/etc/hostname', LineAsString)", "SYSTEM SHUTDOWN",
		"GRANT ALL ON *.* TO reader", "CREATE USER u",
	} {
		if err := reader.Exec(t.Context(), statement); err == nil {
			t.Errorf("reader may %s", statement)
		}
	}
	_ = reader.Close()
	_ = conn.Close()
	if err := s.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
	if _, err := Discover(s.path); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after Stop, Discover returns %v", err)
	}
}

func TestRefusesWhoeverHasNoPassword(t *testing.T) {
	s := startServer(t, testOptions(t))
	for _, statement := range []string{
		"SELECT * FROM system.processes", "CREATE TABLE default.x (v Int8) ENGINE = Memory",
		"SELECT * FROM file('/etc/hostname', LineAsString)", "SYSTEM SHUTDOWN", "KILL QUERY WHERE 1",
	} {
		if body := post(t, s.Addr(), statement); !strings.Contains(body, "ACCESS_DENIED") {
			t.Errorf("%s: %s", statement, body)
		}
	}
	for _, name := range []string{endpointName, "users.xml", "config.xml"} {
		info, err := os.Stat(filepath.Join(s.path, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

func post(t *testing.T, addr, statement string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+addr, "text/plain", strings.NewReader(statement))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, _ := bufio.NewReader(resp.Body).ReadString('\n')
	return line
}

func TestDirectoryInUse(t *testing.T) {
	o := testOptions(t)
	s := startServer(t, o)
	o.LockWait = 0
	_, err := Start(t.Context(), o)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), o.Path) {
		t.Fatalf("err = %v", err)
	}
	if err := s.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	startServer(t, o)
}

// The engine ends with status 0 when its port is taken: that is no start.
func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	impostor := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})}
	go func() { _ = impostor.Serve(l) }()
	defer func() { _ = impostor.Close() }()
	o := testOptions(t)
	o.Port = l.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), o)
	if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "Address already in use") {
		t.Fatalf("err = %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	broken := filepath.Join(t.TempDir(), libraryName)
	if err := os.WriteFile(broken, []byte(strings.Repeat("not a library ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*Options)
		want   error
		text   string
	}{
		"library":   {func(o *Options) { o.Library = broken }, ErrStart, "invalid ELF header"},
		"no path":   {func(o *Options) { o.Path = "" }, ErrOptions, "path is empty"},
		"port":      {func(o *Options) { o.Port = 65536 }, ErrOptions, "port is 65536"},
		"memory":    {func(o *Options) { o.MemoryBytes = 1 }, ErrOptions, "memory_bytes is 1"},
		"lock wait": {func(o *Options) { o.LockWait = -1 }, ErrOptions, "lock_wait"},
		"logger":    {func(o *Options) { o.Logger = nil }, ErrOptions, "logger"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			test.change(&o)
			_, err := Start(t.Context(), o)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestStartStopsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := testOptions(t)
	if _, err := Start(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
	o.LockWait = 0
	startServer(t, o) // nothing was left behind
}

func TestDataSurvivesKill(t *testing.T) {
	o := testOptions(t)
	s := startServer(t, o)
	conn, err := Open(t.Context(), s.DSN(), CreateDatabase())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range []string{
		"CREATE TABLE n (v UInt64) ENGINE = MergeTree ORDER BY v", "INSERT INTO n SELECT number FROM numbers(1000)",
	} {
		if err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Err(); !errors.Is(err, ErrExited) {
		t.Errorf("err = %v", err)
	}
	again := startServer(t, o)
	conn2, err := Open(t.Context(), again.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn2.Close() }()
	var n uint64
	if err := conn2.QueryRow(t.Context(), "SELECT count() FROM n").Scan(&n); err != nil || n != 1000 {
		t.Errorf("n = %d, %v", n, err)
	}
}

// A parent that is killed cannot stop its child; the child must notice by itself,
// and whoever starts next must get the directory.
func TestChildDiesWithItsParent(t *testing.T) {
	o := testOptions(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), parentEnv+"="+o.Path)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	endpoint, err := Discover(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "end of the child", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
	// The lock goes with the last thread, a moment after the first.
	eventually(t, "free data directory", func() bool {
		_, err := Discover(o.Path)
		return errors.Is(err, ErrNotRunning)
	})
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", u.Host); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("port still open: %v, %v", c, err)
	}
	startServer(t, o)
}

func TestSupervisorRestartsOnTheSamePort(t *testing.T) {
	events := make(chan Event, 8)
	sup, err := Supervise(t.Context(), testOptions(t), func(e Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sup.Stop(10 * time.Second) }()
	conn, err := Open(t.Context(), sup.DSN(), CreateDatabase())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 2 {
		pid := sup.PID()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := <-events; e.Kind != EventExited || !errors.Is(e.Err, ErrExited) {
			t.Fatalf("event = %+v", e)
		}
		e := <-events
		if e.Kind != EventRestarted || e.Err != nil || e.Down <= 0 {
			t.Fatalf("event = %+v", e)
		}
		t.Logf("down for %v", e.Down)
		if sup.PID() == pid {
			t.Error("the same process")
		}
		// The pool's first connection broke with the old process.
		eventually(t, "answer on the old connection pool", func() bool { return conn.Ping(t.Context()) == nil })
	}
	_ = conn.Close()
	if err := sup.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
	if err := sup.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
	select {
	case e := <-events:
		t.Errorf("event after Stop: %+v", e)
	default:
	}
}

func TestSupervisorReportsFailedRestarts(t *testing.T) {
	events := make(chan Event, 64)
	o := testOptions(t)
	o.LockWait = 0
	sup, err := Supervise(t.Context(), o, func(e Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sup.Stop(10 * time.Second) }()
	pid := sup.PID()
	// The lock is free as soon as the process is gone, and taken before the restart.
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-events
	lock, err := tryLock(filepath.Join(o.Path, lockName))
	if err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Kind != EventRestartFailed || e.Attempt != 1 || !errors.Is(e.Err, ErrInUse) {
		t.Fatalf("event = %+v", e)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.Kind == EventRestarted {
			break
		}
	}
}
