//go:build llama && cgo

package llama

import "testing"

// What ggml allocates in one piece of some MiB begins a large page, and can be given back to it.
func TestLargePages(t *testing.T) {
	for _, size := range []int{4 << 20, 5<<20 + 1, 64 << 20} {
		if !largePage(size) {
			t.Errorf("%d bytes do not begin a large page", size)
		}
	}
}
