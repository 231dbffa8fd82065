//go:build llama && cgo

package llama

// #cgo CXXFLAGS: -std=c++17
// #cgo noescape cadence_piece
// #cgo nocallback cadence_piece
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/cgo"
	"strings"
	"sync"
	"unsafe"

	// The C++ objects that this package is linked to; nothing in them is called from Go.
	_ "github.com/ollama/ollama/llama/llama.cpp/src"
	_ "github.com/ollama/ollama/ml/backend/ggml/ggml/src"
)

// Built tells whether llama.cpp is part of this binary.
const Built = true

// process mirrors llama.cpp's own process-wide state.
var process struct {
	sync.Mutex
	started bool
}

// Init starts llama.cpp and sends its log to logger for the life of the process: its chatty INFO at Debug, warnings and errors
// at their level. backendDir, unless "", holds ggml backends (libggml-*.so) to load, of a GPU for instance; loading is silent, so
// check [Devices]. A nil logger drops the log. A second call changes nothing and returns nil.
func Init(logger *slog.Logger, backendDir string) error {
	process.Lock()
	defer process.Unlock()
	if process.started {
		return nil
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	var dir *C.char
	if backendDir != "" {
		dir = C.CString(backendDir)
		defer C.free(unsafe.Pointer(dir))
	}
	var text errorText
	if C.cadence_init(C.uintptr_t(cgo.NewHandle(logger)), dir, text.c()) != 0 {
		return fmt.Errorf("%w: %s", ErrInit, text)
	}
	process.started = true
	return nil
}

func started() bool {
	process.Lock()
	defer process.Unlock()
	return process.started
}

// goLlamaLog receives complete lines, from whichever thread llama.cpp logs on.
//
//export goLlamaLog
func goLlamaLog(handle C.uintptr_t, level C.int, text *C.char) {
	logger := cgo.Handle(handle).Value().(*slog.Logger)
	severity := slog.LevelDebug
	switch level {
	case C.GGML_LOG_LEVEL_WARN:
		severity = slog.LevelWarn
	case C.GGML_LOG_LEVEL_ERROR:
		severity = slog.LevelError
	}
	if ctx := context.Background(); logger.Enabled(ctx, severity) {
		logger.Log(ctx, severity, "llama.cpp", "line", strings.TrimRight(C.GoString(text), " "))
	}
}

// Devices lists what llama.cpp can compute on, the CPU included.
func Devices() ([]Device, error) {
	if !started() {
		return nil, ErrNotInit
	}
	kinds := map[C.int]string{
		C.GGML_BACKEND_DEVICE_TYPE_CPU: "cpu", C.GGML_BACKEND_DEVICE_TYPE_GPU: "gpu",
		C.GGML_BACKEND_DEVICE_TYPE_IGPU: "igpu", C.GGML_BACKEND_DEVICE_TYPE_ACCEL: "accel",
	}
	var devices []Device
	for i := C.size_t(0); ; i++ {
		var name, description *C.char
		var free, total C.size_t
		kind := C.cadence_device(i, &name, &description, &free, &total)
		if kind < 0 {
			return devices, nil
		}
		devices = append(devices, Device{
			Name: C.GoString(name), Description: C.GoString(description), Kind: kinds[kind],
			MemoryFreeBytes: uint64(free), MemoryTotalBytes: uint64(total),
		})
	}
}

// SystemInfo is llama.cpp's line on the vector units that it was compiled for.
func SystemInfo() (string, error) {
	if !started() {
		return "", ErrNotInit
	}
	return strings.TrimSpace(C.GoString(C.llama_print_system_info())), nil
}

// errorText is room for what the C side says about a failure.
type errorText [C.CADENCE_ERROR_BYTES]byte

func (t *errorText) c() *C.char { return (*C.char)(unsafe.Pointer(t)) }

func (t *errorText) String() string {
	if s := C.GoString(t.c()); s != "" {
		return s
	}
	return "no reason given"
}
