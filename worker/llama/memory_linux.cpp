//go:build llama && cgo

// Large pages for what ggml allocates in one piece: weights that were rearranged, the KV cache, compute buffers. A step reads nearly
// all of it, and with pages of 4 KiB the processor looks up an address for every 4 KiB, twice in a virtual machine. ggml asks for
// nothing, and Linux gives large pages to those who ask.

#include "shim.h"

#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>

extern "C" {
void * ggml_aligned_malloc(size_t size);
void   ggml_aligned_free(void * memory, size_t size);
void * __real_ggml_aligned_malloc(size_t size);
void * __wrap_ggml_aligned_malloc(size_t size);
}

namespace {

constexpr size_t page  = size_t(2) << 20;
constexpr size_t least = 2 * page; // smaller ones would round up to much more than they need

} // namespace

bool cadence_large_page(size_t size) {
    void *     memory = ggml_aligned_malloc(size);
    const bool yes    = memory != nullptr && reinterpret_cast<uintptr_t>(memory) % page == 0;
    ggml_aligned_free(memory, size);
    return yes;
}

// What it returns goes to ggml_aligned_free, which is free on Linux.
void * __wrap_ggml_aligned_malloc(size_t size) {
    if (size < least) {
        return __real_ggml_aligned_malloc(size);
    }
    const size_t rounded = (size + page - 1) / page * page;
    void *       memory  = nullptr;
    if (rounded < size || posix_memalign(&memory, page, rounded) != 0) {
        return __real_ggml_aligned_malloc(size); // says what is wrong
    }
    madvise(memory, rounded, MADV_HUGEPAGE); // advice: a kernel without them refuses, and nothing is lost
    return memory;
}
