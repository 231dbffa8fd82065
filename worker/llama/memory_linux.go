//go:build llama && cgo

package llama

// #cgo LDFLAGS: -Wl,--wrap=ggml_aligned_malloc
import "C"
