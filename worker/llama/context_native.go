//go:build llama && cgo

package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Context is the computing state of a model: KV cache, compute buffers, last logits. It belongs to one goroutine, which alone may
// call its methods, except Interrupt.
type Context struct {
	model     *Model
	context   *C.struct_llama_context
	memory    C.llama_memory_t
	options   ContextOptions // what llama.cpp made of them
	scratch   **C.llama_seq_id
	positions func(SeqID) Pos // highest position of a sequence, -1 for none
	spans     [MaxSequences]span
	outputs   []int8     // of the last Decode, 1 where a row has logits; empty after an error
	reason    *errorText // of the last failed Decode

	interruptMu sync.Mutex
	interrupt   *int32 // C memory that llama.cpp polls; nil once closed
}

// NewContext makes a context with an empty cache. The error wraps [ErrOptions], [ErrVocabOnly], [ErrClosed] or [ErrContext], the
// last for lack of memory, too.
func NewContext(m *Model, options ContextOptions) (*Context, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.model == nil {
		return nil, ErrClosed
	}
	if m.facts.VocabOnly {
		return nil, fmt.Errorf("%w: %s", ErrVocabOnly, m.facts.Path)
	}
	flag := (*int32)(C.calloc(1, 4))
	var text errorText
	context := C.cadence_context_new(m.model, C.cadence_context_options{
		cells:              C.uint32_t(options.Cells),
		batch_tokens:       C.uint32_t(options.BatchTokens),
		micro_batch_tokens: C.uint32_t(options.MicroBatchTokens),
		sequences:          C.uint32_t(options.Sequences),
		threads:            C.int32_t(options.Threads),
		batch_threads:      C.int32_t(options.BatchThreads),
	}, (*C.int32_t)(flag), text.c())
	if context == nil {
		C.free(unsafe.Pointer(flag))
		return nil, fmt.Errorf("%w: %s", ErrContext, &text)
	}
	c := &Context{model: m, context: context, memory: C.llama_get_memory(context), interrupt: flag, reason: new(errorText)}
	if c.memory == nil {
		C.llama_free(context)
		C.free(unsafe.Pointer(flag))
		return nil, fmt.Errorf("%w: it has no KV cache", ErrUnsupported)
	}
	c.options = options
	c.options.Cells = int(C.llama_n_ctx(context))
	c.options.BatchTokens = int(C.llama_n_batch(context))
	c.options.MicroBatchTokens = int(C.llama_n_ubatch(context))
	c.scratch = (**C.llama_seq_id)(C.calloc(C.size_t(c.options.BatchTokens), C.size_t(unsafe.Sizeof(uintptr(0)))))
	c.positions = func(s SeqID) Pos { return Pos(C.llama_memory_seq_pos_max(c.memory, C.llama_seq_id(s))) }
	m.contexts++
	return c, nil
}

// Options is what the context was made with, sizes as llama.cpp rounded them.
func (c *Context) Options() ContextOptions { return c.options }

// Model is the model that the context computes.
func (c *Context) Model() *Model { return c.model }

// Decode computes the batch and puts its tokens into the cache. On error the cache holds what it held before. The error wraps
//
//   - [ErrBadBatch]: the batch does not fit this context or continue its sequences; nothing was computed
//   - [ErrNoSlot]: not enough free cells
//   - [ErrAborted]: [Context.Interrupt] was called
//   - [ErrDecode]: llama.cpp failed
//   - [ErrClosed]
//
// The batch may be reset and refilled afterwards; rows of logits keep their numbers until the next Decode.
func (c *Context) Decode(b *Batch) error {
	if c.context == nil {
		return ErrClosed
	}
	c.outputs = c.outputs[:0]
	if err := b.spans(c.model.facts.Vocab, c.options.BatchTokens, c.options.Sequences, c.positions, &c.spans); err != nil {
		return err
	}
	code := C.cadence_decode(c.context, C.int32_t(len(b.tokens)), (*C.llama_token)(unsafe.SliceData(b.tokens)),
		(*C.llama_pos)(unsafe.SliceData(b.positions)), (*C.int32_t)(unsafe.SliceData(b.counts)),
		(*C.llama_seq_id)(unsafe.SliceData(b.sequences)), (*C.int8_t)(unsafe.SliceData(b.outputs)), c.scratch, c.reason.c())
	if code == 0 {
		c.outputs = append(c.outputs, b.outputs...)
		return nil
	}
	// After an abort or a failure llama.cpp keeps the micro-batches that it had finished.
	for s, span := range c.spans {
		if span.next > 0 {
			C.llama_memory_seq_rm(c.memory, C.llama_seq_id(s), C.llama_pos(span.first), -1)
		}
	}
	switch code {
	case 1:
		return fmt.Errorf("%w: %d tokens", ErrNoSlot, len(b.tokens))
	case 2:
		c.setInterrupt(0)
		return ErrAborted
	case -1:
		return fmt.Errorf("%w: %s", ErrBadBatch, c.reason)
	}
	return fmt.Errorf("%w: code %d: %s", ErrDecode, int(code), c.reason)
}

// Logits is the row's output of the last Decode: len = Facts.Vocab, indexed by token. The memory is llama.cpp's; it is valid, and
// may be changed, until the next Decode or Close. The error wraps [ErrNoLogits] when the row was added without wantLogits,
// does not exist, or the last Decode failed.
func (c *Context) Logits(row int) ([]float32, error) {
	if c.context == nil {
		return nil, ErrClosed
	}
	if row < 0 || row >= len(c.outputs) || c.outputs[row] == 0 {
		return nil, fmt.Errorf("%w: row %d of %d", ErrNoLogits, row, len(c.outputs))
	}
	p := C.llama_get_logits_ith(c.context, C.int32_t(row))
	if p == nil {
		return nil, fmt.Errorf("%w: row %d", ErrNoLogits, row)
	}
	return unsafe.Slice((*float32)(p), c.model.facts.Vocab), nil
}

// Interrupt makes the Decode under way, or the next one if there is none, return [ErrAborted] as soon as the CPU has
// finished the operation at hand. Any goroutine may call it; after Close it does nothing.
func (c *Context) Interrupt() { c.setInterrupt(1) }

func (c *Context) setInterrupt(v int32) {
	c.interruptMu.Lock()
	defer c.interruptMu.Unlock()
	if c.interrupt != nil {
		atomic.StoreInt32(c.interrupt, v)
	}
}

// SetThreads changes the number of threads for batches of one token and for larger ones, from the next Decode on.
func (c *Context) SetThreads(threads, batchThreads int) error {
	if c.context == nil {
		return ErrClosed
	}
	o := c.options
	o.Threads, o.BatchThreads = threads, batchThreads
	if err := o.Validate(); err != nil {
		return err
	}
	c.options = o
	C.llama_set_n_threads(c.context, C.int32_t(threads), C.int32_t(batchThreads))
	return nil
}

// checkSequence guards against ids that llama.cpp aborts on.
func (c *Context) checkSequence(s SeqID) error {
	if c.context == nil {
		return ErrClosed
	}
	if s < 0 || int(s) >= c.options.Sequences {
		return fmt.Errorf("%w: sequence %d, allowed: 0 to %d", ErrBadSequence, s, c.options.Sequences-1)
	}
	return nil
}

// SeqCopy makes dst share src's tokens at positions [from, to); a negative to means all from there on. No data is copied: both use the same cells.
// dst must be empty or end right before from, since a sequence holds each position once. A range that src does not
// hold copies what there is. The error wraps [ErrBadSequence] or [ErrClosed].
func (c *Context) SeqCopy(src, dst SeqID, from, to Pos) error {
	if err := c.checkSequence(src); err != nil {
		return err
	}
	if err := c.checkSequence(dst); err != nil {
		return err
	}
	if src == dst {
		return fmt.Errorf("%w: sequence %d onto itself", ErrBadSequence, src)
	}
	if from < 0 || to >= 0 && to < from {
		return fmt.Errorf("%w: positions [%d, %d)", ErrBadSequence, from, to)
	}
	if held := c.positions(dst); held >= 0 && from != held+1 {
		return fmt.Errorf("%w: copy from position %d into sequence %d, which holds up to %d", ErrBadSequence, from, dst, held)
	}
	C.llama_memory_seq_cp(c.memory, C.llama_seq_id(src), C.llama_seq_id(dst), C.llama_pos(from), C.llama_pos(to))
	return nil
}

// SeqRebase makes dst share src's tokens at positions [0, to) in the place of its own, which must be equal. Both hold at
// least so many. Cells that no other sequence uses become free. The error wraps [ErrBadSequence], [ErrPartialRemove] or
// [ErrClosed].
func (c *Context) SeqRebase(src, dst SeqID, to Pos) error {
	for _, s := range [2]SeqID{src, dst} {
		if err := c.checkSequence(s); err != nil {
			return err
		}
		if held := c.positions(s); held+1 < to {
			return fmt.Errorf("%w: rebase of %d positions, sequence %d holds %d", ErrBadSequence, to, s, held+1)
		}
	}
	if src == dst || to < 0 {
		return fmt.Errorf("%w: sequence %d onto %d, %d positions", ErrBadSequence, src, dst, to)
	}
	if err := c.SeqRemove(dst, 0, to); err != nil {
		return err
	}
	C.llama_memory_seq_cp(c.memory, C.llama_seq_id(src), C.llama_seq_id(dst), 0, C.llama_pos(to))
	return nil
}

// SeqRemove forgets the sequence's tokens at positions [from, to); a negative to means all from there on. Cells that no other
// sequence uses become free. The error wraps [ErrBadSequence], [ErrPartialRemove] or [ErrClosed].
func (c *Context) SeqRemove(s SeqID, from, to Pos) error {
	if err := c.checkSequence(s); err != nil {
		return err
	}
	if from < 0 || to >= 0 && to < from {
		return fmt.Errorf("%w: positions [%d, %d)", ErrBadSequence, from, to)
	}
	if !bool(C.llama_memory_seq_rm(c.memory, C.llama_seq_id(s), C.llama_pos(from), C.llama_pos(to))) {
		return fmt.Errorf("%w: sequence %d, positions [%d, %d)", ErrPartialRemove, s, from, to)
	}
	return nil
}

// SeqPosMax is the highest position that the sequence holds, -1 when it is empty. The error wraps [ErrBadSequence] or [ErrClosed].
func (c *Context) SeqPosMax(s SeqID) (Pos, error) {
	if err := c.checkSequence(s); err != nil {
		return -1, err
	}
	return c.positions(s), nil
}

// Clear empties the cache. It does nothing after Close.
func (c *Context) Clear() {
	if c.context != nil {
		C.llama_memory_clear(c.memory, false)
	}
}

// Close frees the context, before its model; rows of logits become invalid. Further calls return nil.
func (c *Context) Close() error {
	if c.context == nil {
		return nil
	}
	C.llama_free(c.context)
	c.context, c.memory = nil, nil
	C.free(unsafe.Pointer(c.scratch))
	c.interruptMu.Lock()
	C.free(unsafe.Pointer(c.interrupt))
	c.interrupt = nil
	c.interruptMu.Unlock()
	c.model.mu.Lock()
	c.model.contexts--
	c.model.mu.Unlock()
	return nil
}
