package process

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func start(t *testing.T, script string, args ...string) *Process {
	t.Helper()
	p, err := Start(Options{Path: "/bin/sh", Args: append([]string{"-c", script}, args...), Env: []string{"GREETING=hello"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func is(want string) func(string) bool { return func(line string) bool { return line == want } }

func TestWithout(t *testing.T) {
	t.Setenv("HIDDEN_ONE", "x")
	p, err := Start(Options{Path: "/bin/sh", Args: []string{"-c", `echo "$HIDDEN_ONE,$HIDDEN_TWO,${PATH:+path}"`}, Env: []string{"HIDDEN_TWO=kept"}, Without: "HIDDEN_"})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if got := strings.TrimSpace(p.Output()); got != ",kept,path" {
		t.Error(got)
	}
	if !slices.Equal(Environ(""), os.Environ()) {
		t.Error("an empty prefix takes variables away")
	}
}

func TestOutputs(t *testing.T) {
	p := start(t, `echo one; echo two >&2; printf "$GREETING"; exit 3`)
	for _, want := range []string{"hello", "two", "one"} {
		if got, err := p.WaitLine(within(t), is(want)); err != nil || got != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	<-p.Done()
	if p.ExitCode() != 3 || len(strings.Split(p.Output(), "\n")) != 3 {
		t.Fatalf("code %d, output %q", p.ExitCode(), p.Output())
	}
	if _, err := p.WaitLine(within(t), is("three")); !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "hello") {
		t.Fatal(err)
	}
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

func TestWaitLineGivesUp(t *testing.T) {
	p := start(t, "exec sleep 100")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.WaitLine(ctx, is("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if p.ExitCode() != -1 {
		t.Fatal("it runs")
	}
}

func TestStop(t *testing.T) {
	p := start(t, `trap "echo bye; exit 0" TERM; echo ready; while :; do sleep 0.01; done`)
	if _, err := p.WaitLine(within(t), is("ready")); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(within(t)); err != nil || p.ExitCode() != 0 || !strings.Contains(p.Output(), "bye") {
		t.Fatalf("%v, code %d, %q", err, p.ExitCode(), p.Output())
	}
	p = start(t, `trap "" TERM; echo ready; while :; do sleep 0.01; done`)
	if _, err := p.WaitLine(within(t), is("ready")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || p.ExitCode() != -1 {
		t.Fatal(err)
	}
	<-p.Done()
}

func TestLongOutputKeepsBothEnds(t *testing.T) {
	p := start(t, `i=0; while [ $i -lt 26000 ]; do echo $i; i=$((i+1)); done`)
	<-p.Done()
	lines := strings.Split(p.Output(), "\n")
	if len(lines) > maxLines || lines[0] != "0" || lines[len(lines)-1] != "25999" {
		t.Fatalf("%d lines from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

func TestCPU(t *testing.T) {
	p := start(t, `(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; while kill -0 $$ 2>/dev/null; do sleep 0.02; done) & wait`)
	if _, err := p.WaitLine(within(t), is("done")); err != nil {
		t.Fatal(err)
	}
	all, err := MachineCPU()
	if err != nil {
		t.Fatal(err)
	}
	used, err := p.CPU()
	if err != nil {
		t.Fatal(err)
	}
	if used.Children < 20*time.Millisecond || used.Self > used.Children || all < used.Children {
		t.Fatalf("%+v of %v", used, all)
	}
}
