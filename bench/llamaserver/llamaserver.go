package llamaserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/process"
)

// ErrMissing is returned by Find if there is no binary; the message says what installs it.
var ErrMissing = errors.New("llamaserver: no llama-server here: `make llama-server` builds it")

// EnvBinary is the variable that names a binary; the Makefile sets it.
const EnvBinary = "CADENCE_LLAMA_SERVER"

// Find returns the path of the binary: what EnvBinary names, or else the newest one that `make llama-server` has put
// into the user's cache, or else that of the search path. It returns ErrMissing.
func Find() (string, error) {
	if path := os.Getenv(EnvBinary); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%w (%s: %w)", ErrMissing, EnvBinary, err)
		}
		return path, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		found, err := filepath.Glob(filepath.Join(cache, "cadence", "llama-server-*", "llama-server"))
		if err != nil {
			return "", fmt.Errorf("%w (%w)", ErrMissing, err)
		}
		var newest string
		var when time.Time
		for _, path := range found {
			if st, err := os.Stat(path); err == nil && st.ModTime().After(when) {
				newest, when = path, st.ModTime()
			}
		}
		if newest != "" {
			return newest, nil
		}
	}
	path, err := exec.LookPath("llama-server")
	if err != nil {
		return "", fmt.Errorf("%w (%s can name another, or its folder stand in PATH)", ErrMissing, EnvBinary)
	}
	return path, nil
}

// Options say what to run.
type Options struct {
	Binary string // empty: what Find finds
	Model  string // a GGUF file
	// Threads for prefill and decode, Slots that run at once, Context tokens of all slots together; 0 leaves
	// llama-server's default.
	Threads, Slots, Context int
	ExtraArgs               []string // as on its command line
	// Log is told of start and end; nil is nobody.
	Log *slog.Logger
}

// Server is a llama-server that answers. Its methods are safe for concurrent use.
type Server struct {
	URL     string // http://127.0.0.1:PORT
	Args    []string
	Version string // what the binary says of itself
	process *process.Process
	log     *slog.Logger
}

var (
	listening = regexp.MustCompile(`listening on (http://127\.0\.0\.1:[0-9]+)`)
	version   = regexp.MustCompile(`version:? (.+)$`)
)

// Start runs a server on a free port of this machine and waits until its model is loaded. It ends the child if it
// returns an error, which holds the last lines of what the child said. The child lives until Stop, Kill or the end of
// this process; ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Binary == "" {
		var err error
		if o.Binary, err = Find(); err != nil {
			return nil, err
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{log: o.Log, Args: arguments(&o)}
	var err error
	if s.Version, err = ask(ctx, o.Binary); err != nil {
		return nil, err
	}
	// Its own flags can come from variables too, so that it gets none of the caller's.
	s.process, err = process.Start(process.Options{Name: "llama-server", Path: o.Binary, Args: s.Args, Without: "LLAMA_"})
	if err != nil {
		return nil, err
	}
	if err := s.wait(ctx); err != nil {
		return nil, errors.Join(err, s.process.Kill())
	}
	o.Log.Info("llama-server ready", "url", s.URL, "version", s.Version, "args", strings.Join(s.Args, " "))
	return s, nil
}

// arguments are the child's.
func arguments(o *Options) []string {
	args := []string{"--model", o.Model, "--host", "127.0.0.1", "--port", "0"}
	for _, n := range []struct {
		flag  string
		value int
	}{{"--threads", o.Threads}, {"--parallel", o.Slots}, {"--ctx-size", o.Context}} {
		if n.value > 0 {
			args = append(args, n.flag, strconv.Itoa(n.value))
		}
	}
	return append(args, o.ExtraArgs...)
}

// ask returns the version of a binary.
func ask(ctx context.Context, binary string) (string, error) {
	p, err := process.Start(process.Options{Name: "llama-server --version", Path: binary, Args: []string{"--version"}})
	if err != nil {
		return "", err
	}
	line, err := p.WaitLine(ctx, version.MatchString)
	if err != nil {
		return "", errors.Join(err, p.Kill())
	}
	select {
	case <-p.Done():
		return version.FindStringSubmatch(line)[1], nil
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), p.Kill())
	}
}

// wait learns the port and asks for the server's health until it is well.
func (s *Server) wait(ctx context.Context) error {
	line, err := s.process.WaitLine(ctx, listening.MatchString)
	if err != nil {
		return err
	}
	s.URL = listening.FindStringSubmatch(line)[1]
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if err := s.healthy(ctx); err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-s.process.Done():
			return fmt.Errorf("%w: llama-server, code %d; it said:\n%s", process.ErrExited, s.process.ExitCode(), s.process.Tail(30))
		case <-ctx.Done():
			return fmt.Errorf("llamaserver: waiting for the model: %w; it said:\n%s", ctx.Err(), s.process.Tail(30))
		}
	}
}

func (s *Server) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/health", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("llamaserver: health is %s", res.Status)
	}
	return nil
}

// Process is the child.
func (s *Server) Process() *process.Process { return s.process }

// Stop ends the server as its operator would, or kills it when ctx ends.
func (s *Server) Stop(ctx context.Context) error {
	defer s.log.Info("llama-server stopped", "url", s.URL)
	return s.process.Stop(ctx)
}

// Kill ends the server at once.
func (s *Server) Kill() error { return s.process.Kill() }
