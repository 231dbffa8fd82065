package clickhouse

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// childEnv carries the library's path to the child and marks it as one.
const childEnv = "CADENCE_CLICKHOUSE_CHILD"

// exitBroken is the child's status when it could not run the engine at all. The
// engine's own failures exit with 0.
const exitBroken = 70

// orphanGrace bounds the clean shutdown of a child whose standard input ended: the
// parent that would have killed a stuck one may be gone.
const orphanGrace = 30 * time.Second

// MaybeChild turns the process into the engine if [Start] started it as such, and
// then never returns. Call it first in main and in TestMain.
func MaybeChild() {
	library, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	runtime.LockOSThread()
	if err := runChild(library, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitBroken)
	}
	os.Exit(0)
}

// runChild calls the library's main function with args, args[0] being the program
// name, and returns when it does.
func runChild(library string, args []string) error {
	if err := interposeStdin(); err != nil {
		return err
	}
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	var cmdline func(argc int32, argv **byte) uintptr
	var resultError func(result uintptr) *byte
	purego.RegisterLibFunc(&cmdline, handle, "chdb_query_cmdline")
	purego.RegisterLibFunc(&resultError, handle, "chdb_result_error")

	argv := make([]*byte, len(args)+1) // NULL-terminated
	for i, arg := range args {
		if argv[i], err = syscall.BytePtrFromString(arg); err != nil {
			return err
		}
	}
	result := cmdline(int32(len(args)), &argv[0])
	if result == 0 {
		return nil
	}
	if message := resultError(result); message != nil && *message != 0 {
		return fmt.Errorf("%s", unix.BytePtrToString((*byte)(unsafe.Pointer(message))))
	}
	return nil
}

// interposeStdin puts a pipe between the real standard input and the engine, whose
// last statement reads it to the end. End of the real input, SIGTERM and SIGINT then
// all close the pipe: one clean way to stop.
func interposeStdin() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	real, err := unix.Dup(0)
	if err != nil {
		return err
	}
	unix.CloseOnExec(real)
	if err := unix.Dup2(int(r.Fd()), 0); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	ended := make(chan struct{})
	go func() {
		// An error is an end too: without a parent there is nobody to serve.
		_, _ = io.Copy(io.Discard, os.NewFile(uintptr(real), "stdin"))
		close(ended)
	}()
	go func() {
		select {
		case <-stop:
		case <-ended:
		}
		_ = w.Close()
		time.AfterFunc(orphanGrace, func() { _ = unix.Kill(unix.Getpid(), unix.SIGKILL) })
	}()
	return nil
}
