package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrExited is returned for a process that ended before it said what was waited for; the message holds its last lines.
var ErrExited = errors.New("process: exited")

// Options says what to run.
type Options struct {
	Name string // in messages; empty is the base name of Path
	Path string
	Args []string
	// Env is added to this process's environment, or to what Without leaves of it.
	Env []string
	// Without is the prefix of the variables that are not passed on; empty passes all of them.
	Without string
	Dir     string // working directory; empty is this process's
}

// Environ is this process's environment without the variables whose names begin with a prefix.
func Environ(without string) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return without != "" && strings.HasPrefix(v, without) })
}

// maxLines is how much of a process's output is kept: the first and the last half of it.
const maxLines = 20000

// Process is a running or ended child.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited and its output was read

	mu      sync.Mutex
	lines   []string
	dropped int           // lines in the middle that are not kept
	changed chan struct{} // closed and replaced when a line comes
	exit    error
}

// Start starts a process.
func Start(o Options) (*Process, error) {
	p := &Process{name: o.Name, done: make(chan struct{}), changed: make(chan struct{})}
	p.cmd = exec.Command(o.Path, o.Args...)
	p.cmd.Env = append(Environ(o.Without), o.Env...)
	p.cmd.Dir = o.Dir
	p.cmd.SysProcAttr = attributes()
	if p.name == "" {
		p.name = o.Path[strings.LastIndexByte(o.Path, '/')+1:]
	}
	out, errs := &lineWriter{p: p}, &lineWriter{p: p}
	p.cmd.Stdout, p.cmd.Stderr = out, errs
	p.cmd.WaitDelay = time.Second // a grandchild may hold the outputs open
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("process: %s: %w", p.name, err)
	}
	go func() {
		err := p.cmd.Wait()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil
		}
		out.flush()
		errs.flush()
		p.mu.Lock()
		p.exit = err
		p.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

// lineWriter cuts one output into lines. Its owner is the goroutine that copies the output, then the one that waits.
type lineWriter struct {
	p    *Process
	rest []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, after, found := bytes.Cut(b, []byte{'\n'})
		w.rest = append(w.rest, line...)
		if !found {
			return n, nil
		}
		w.p.add(string(w.rest))
		w.rest, b = w.rest[:0], after
	}
}

// flush takes what the output ended with.
func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.p.add(string(w.rest))
	}
}

func (p *Process) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == maxLines {
		p.lines = append(p.lines[:maxLines/2], p.lines[maxLines/2+maxLines/4:]...)
		p.dropped += maxLines / 4
	}
	p.lines = append(p.lines, line)
	close(p.changed)
	p.changed = make(chan struct{})
}

// WaitLine returns the first line, of either output and from the start on, for which match is true. It returns
// ErrExited if the process ends without one, and ctx's error with what was said.
func (p *Process) WaitLine(ctx context.Context, match func(line string) bool) (string, error) {
	for seen := 0; ; {
		p.mu.Lock()
		lines, changed := slices.Clone(p.lines[min(max(seen-p.dropped, 0), len(p.lines)):]), p.changed
		seen = p.dropped + len(p.lines)
		p.mu.Unlock()
		for _, line := range lines {
			if match(line) {
				return line, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("process: waiting for %s: %w; it said:\n%s", p.name, ctx.Err(), p.Tail(30))
		case <-p.done:
			p.mu.Lock()
			more := p.dropped+len(p.lines) > seen
			p.mu.Unlock()
			if !more {
				return "", fmt.Errorf("%w: %s, code %d; it said:\n%s", ErrExited, p.name, p.ExitCode(), p.Tail(30))
			}
		}
	}
}

// Name is what messages call the process.
func (p *Process) Name() string { return p.name }

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code, or -1 while the process runs and if a signal ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Output is what the process said, both outputs in the order of arrival.
func (p *Process) Output() string { return p.Tail(maxLines) }

// Tail is the last n lines of what the process said.
func (p *Process) Tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines[max(0, len(p.lines)-n):]
	return strings.Join(lines, "\n")
}

// Signal sends a signal. A process that has ended gets none, and no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("process: signalling %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the process at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop asks the process to end (SIGTERM) and waits for it; when ctx ends it is killed. It returns an error unless the
// process ended by itself with code 0.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("process: stopping %s: %w; it said:\n%s", p.name, ctx.Err(), p.Tail(30)), p.Kill())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit != nil {
		return fmt.Errorf("process: %s: %w", p.name, p.exit)
	}
	return nil
}

// CPU is the CPU time that a process has used, user and system.
type CPU struct {
	Self time.Duration // the process's own
	// Children is that of its live children and of those that it has waited for, theirs included.
	Children time.Duration
}

// Sub returns the time used since an earlier reading.
func (c CPU) Sub(before CPU) CPU { return CPU{c.Self - before.Self, c.Children - before.Children} }
