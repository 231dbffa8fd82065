//go:build llama && cgo

package llama

// #cgo LDFLAGS: -Wl,--wrap=ggml_compute_forward_flash_attn_ext -Wl,--wrap=ggml_compute_forward_set_rows
// #include "shim.h"
import "C"

import "unsafe"

// attention is the shape of one operation; see cadence_attention.
type attention struct {
	width, tokens, heads, groups, cells, threads int
	scale                                        float32
}

// attend computes attention_linux.cpp's operation alone, for tests; positions are those of the cells, nil if they are not
// known. It returns false if ggml's own would be used for the shape.
func (a attention) attend(q []float32, k, v, mask []uint16, positions []int32, out []float32) bool {
	return bool(C.cadence_attend(C.cadence_attention{
		width: C.int32_t(a.width), tokens: C.int32_t(a.tokens), heads: C.int32_t(a.heads), groups: C.int32_t(a.groups),
		cells: C.int32_t(a.cells), threads: C.int32_t(a.threads), scale: C.float(a.scale),
	}, (*C.float)(unsafe.SliceData(q)), (*C.uint16_t)(unsafe.SliceData(k)), (*C.uint16_t)(unsafe.SliceData(v)),
		(*C.uint16_t)(unsafe.SliceData(mask)), (*C.int32_t)(unsafe.SliceData(positions)), (*C.float)(unsafe.SliceData(out))))
}
