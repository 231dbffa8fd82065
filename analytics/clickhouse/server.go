package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// ErrStart is returned when the engine ended before it answered. The message
	// holds the end of its output.
	ErrStart = errors.New("clickhouse: embedded engine did not start")
	// ErrExited is what Err returns when the engine ended without being asked to.
	ErrExited = errors.New("clickhouse: embedded engine exited")
)

// Server is a running embedded engine.
type Server struct {
	addr, tcpAddr string
	credentials   credentials
	path          string
	port          int

	cmd    *exec.Cmd
	stdin  io.Closer
	output *tail
	// stopping is set before anything that makes the process end on purpose.
	stopping atomic.Bool
	// done is closed by the goroutine that waits for the process, after err is set.
	done chan struct{}
	err  error
}

// Start starts the engine and returns once it answers an authenticated query. ctx
// bounds the start alone.
//
// Errors wrap ErrOptions, ErrNotInstalled, ErrPlatform, ErrInUse, ErrStart, or ctx's.
func Start(ctx context.Context, o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return start(ctx, o, newCredentials())
}

func start(ctx context.Context, o Options, c credentials) (*Server, error) {
	if o.Library == "" {
		library, err := FindLibrary()
		if err != nil {
			return nil, err
		}
		o.Library = library
	}
	// A relative data path breaks the engine's fsync calls.
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("clickhouse: data directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("clickhouse: data directory: %w", err)
	}
	lock, err := lockWithin(filepath.Join(path, lockName), o.LockWait, ctx.Done())
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the child's copy keeps the lock
	config, err := writeConfig(path, o.MemoryBytes, c)
	if err != nil {
		return nil, err
	}

	// A free port can be taken by somebody else before the child binds it.
	const attempts = 3
	for attempt := 1; ; attempt++ {
		s, err := spawn(o, path, config, lock, c)
		if err != nil {
			return nil, err
		}
		if err = s.awaitReady(ctx); err == nil {
			err = writeEndpoint(path, dsn(s.addr, readerUser, c.reader))
		}
		if err == nil {
			return s, nil
		}
		s.kill()
		taken := strings.Contains(s.output.String(), "Address already in use")
		if o.Port != 0 || !taken || attempt == attempts || ctx.Err() != nil {
			return nil, err
		}
	}
}

// spawn starts the child process. lock is inherited by it.
func spawn(o Options, path, config string, lock *os.File, c credentials) (*Server, error) {
	s := &Server{path: path, port: o.Port, credentials: c, output: &tail{logger: o.Logger}, done: make(chan struct{})}
	var err error
	if s.port == 0 {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
	}
	s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	// The script ends in a statement that reads standard input to its end: that keeps
	// the listeners open until the parent closes it or is gone.
	script := "SYSTEM START LISTEN HTTP; SELECT count() FROM table"
	tcpPort := 0
	if o.NativeTCP {
		if tcpPort, err = freePort(); err != nil {
			return nil, err
		}
		s.tcpAddr = net.JoinHostPort("127.0.0.1", strconv.Itoa(tcpPort))
		script = "SYSTEM START LISTEN TCP; " + script
	}
	self := "/proc/self/exe" // stays right when the file is replaced by an upgrade
	if runtime.GOOS != "linux" {
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("clickhouse: own executable: %w", err)
		}
	}
	s.cmd = exec.Command(self, "clickhouse", "--config-file="+config, "--path="+path,
		"--listen_host=127.0.0.1", "--http_port="+strconv.Itoa(s.port), "--tcp_port="+strconv.Itoa(tcpPort),
		"--structure=l String", "--input-format=LineAsString", "--output-format=TSV", "--log-level=warning",
		"--query="+script)
	s.cmd.Env = append(os.Environ(), childEnv+"="+o.Library)
	s.cmd.Dir = path
	s.cmd.Stderr = s.output
	s.cmd.ExtraFiles = []*os.File{lock}
	s.cmd.WaitDelay = 5 * time.Second
	// Its own group: an interrupt typed at the terminal must reach the parent only,
	// which stops the engine last.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	go s.wait()
	return s, nil
}

// wait owns err until it closes done.
func (s *Server) wait() {
	defer close(s.done)
	err := s.cmd.Wait()
	switch {
	case err == nil && s.stopping.Load():
		return
	case err == nil:
		// The engine's own failures end with status 0.
		s.err = fmt.Errorf("%w: %s", ErrExited, s.output)
	default:
		s.err = fmt.Errorf("%w: %w: %s", ErrExited, err, s.output)
	}
}

// awaitReady polls until the child answers with this start's password, which nobody
// else who listens on the port could.
func (s *Server) awaitReady(ctx context.Context) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		if s.answers(ctx, &client) {
			return nil
		}
		select {
		case <-retry.C:
		case <-s.done:
			return fmt.Errorf("%w in %s: %w", ErrStart, s.path, s.err)
		case <-ctx.Done():
			return fmt.Errorf("%w in %s: %w: %s", ErrStart, s.path, ctx.Err(), s.output)
		}
	}
}

func (s *Server) answers(ctx context.Context, client *http.Client) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+"/", strings.NewReader("SELECT 1"))
	if err != nil {
		return false
	}
	req.SetBasicAuth(ownerUser, s.credentials.owner)
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Addr is the host:port of the HTTP interface.
func (s *Server) Addr() string { return s.addr }

// NativeAddr is the host:port of the native interface; empty unless
// Options.NativeTCP was set.
func (s *Server) NativeAddr() string { return s.tcpAddr }

// DSN is what [Open] takes to write and read. It holds a password: do not log it.
func (s *Server) DSN() string { return dsn(s.addr, ownerUser, s.credentials.owner) }

// ReaderDSN is what [Open] takes to read only. It holds a password: do not log it.
func (s *Server) ReaderDSN() string { return dsn(s.addr, readerUser, s.credentials.reader) }

// PID is the child's process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Done is closed when the engine has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is nil until Done is closed, and after a Stop that ended cleanly. Otherwise it
// wraps ErrExited.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop ends the engine cleanly, and kills it if it has not ended within grace. Close
// the connections first: an idle one delays a clean end by seconds. It returns nil
// after a clean end, else an error that wraps ErrExited.
func (s *Server) Stop(grace time.Duration) error {
	s.stopping.Store(true)
	_ = os.Remove(filepath.Join(s.path, endpointName))
	_ = s.stdin.Close() // fails if the child is gone already
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-s.done:
	case <-limit.C:
		s.kill()
	}
	return s.err
}

func (s *Server) kill() {
	_ = s.cmd.Process.Kill() // fails if the child is gone already
	<-s.done
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("clickhouse: no free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
