//go:build llama && cgo

package llama

// #cgo LDFLAGS: -Wl,--wrap=ggml_aligned_malloc
// #include "shim.h"
import "C"

// largePage reports whether memory of so many bytes, allocated as ggml does, begins a large page; for tests.
func largePage(size int) bool { return bool(C.cadence_large_page(C.size_t(size))) }
