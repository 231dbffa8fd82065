package llama

import "fmt"

// Batch is the input of one [Context.Decode]: tokens, each with its position, its sequences and whether its logits are wanted.
// It is plain Go memory, made once and refilled each step without allocating. It belongs to one goroutine.
type Batch struct {
	tokens    []int32
	positions []int32
	counts    []int32 // sequences of each token
	sequences []int32 // of all tokens, one after another
	outputs   []int8  // 1 where logits are wanted
	capacity  int
}

// NewBatch makes an empty batch for up to capacity tokens; a capacity below 1 counts as 1.
func NewBatch(capacity int) *Batch {
	capacity = max(capacity, 1)
	return &Batch{
		tokens:    make([]int32, 0, capacity),
		positions: make([]int32, 0, capacity),
		counts:    make([]int32, 0, capacity),
		sequences: make([]int32, 0, capacity),
		outputs:   make([]int8, 0, capacity),
		capacity:  capacity,
	}
}

// Add appends a token at position pos of one or several sequences and returns its row, from 0 in order of adding. Tokens of a
// sequence come in order, each at the position after the last. Several sequences on one token must be equal up to there.
// The error wraps [ErrBatchFull] or [ErrBadBatch]; the batch is then unchanged.
func (b *Batch) Add(token Token, pos Pos, wantLogits bool, sequences ...SeqID) (row int, err error) {
	row = len(b.tokens)
	if row == b.capacity {
		return 0, fmt.Errorf("%w: it holds %d tokens", ErrBatchFull, b.capacity)
	}
	if token < 0 {
		return 0, fmt.Errorf("%w: token %d", ErrBadBatch, token)
	}
	if pos < 0 {
		return 0, fmt.Errorf("%w: position %d", ErrBadBatch, pos)
	}
	if len(sequences) == 0 {
		return 0, fmt.Errorf("%w: token without a sequence", ErrBadBatch)
	}
	for i, s := range sequences {
		if s < 0 || s >= MaxSequences {
			return 0, fmt.Errorf("%w: sequence %d, allowed: 0 to %d", ErrBadBatch, s, MaxSequences-1)
		}
		for _, earlier := range sequences[:i] {
			if s == earlier {
				return 0, fmt.Errorf("%w: sequence %d twice on one token", ErrBadBatch, s)
			}
		}
	}
	b.tokens = append(b.tokens, token)
	b.positions = append(b.positions, pos)
	b.counts = append(b.counts, int32(len(sequences)))
	b.sequences = append(b.sequences, sequences...)
	output := int8(0)
	if wantLogits {
		output = 1
	}
	b.outputs = append(b.outputs, output)
	return row, nil
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.tokens, b.positions, b.counts = b.tokens[:0], b.positions[:0], b.counts[:0]
	b.sequences, b.outputs = b.sequences[:0], b.outputs[:0]
}

// Len is the number of tokens added since the last Reset.
func (b *Batch) Len() int { return len(b.tokens) }

// Cap is the most tokens that the batch holds.
func (b *Batch) Cap() int { return b.capacity }

// span is a sequence's part of a batch: positions in [first, next).
type span struct{ first, next Pos }

// spans checks the batch against a context and collects what it adds to each sequence. last tells the highest position that a sequence holds in
// the cache, -1 for none; spans is cleared and refilled, indexed by sequence, and unused entries stay zero.
func (b *Batch) spans(vocab, maxTokens, maxSequences int, last func(SeqID) Pos, spans *[MaxSequences]span) error {
	*spans = [MaxSequences]span{}
	if n := len(b.tokens); n == 0 || n > maxTokens {
		return fmt.Errorf("%w: %d tokens, allowed: 1 to %d", ErrBadBatch, n, maxTokens)
	}
	rest := b.sequences
	for row, token := range b.tokens {
		if int(token) >= vocab {
			return fmt.Errorf("%w: row %d: %w: %d, allowed: 0 to %d", ErrBadBatch, row, ErrBadToken, token, vocab-1)
		}
		pos := b.positions[row]
		own := rest[:b.counts[row]]
		rest = rest[b.counts[row]:]
		for _, s := range own {
			if int(s) >= maxSequences {
				return fmt.Errorf("%w: row %d: sequence %d, allowed: 0 to %d", ErrBadBatch, row, s, maxSequences-1)
			}
			p := &spans[s]
			expected := p.next
			if p.next == 0 { // the sequence's first token in this batch
				p.first = pos
				expected = pos
				if held := last(s); held >= 0 {
					expected = held + 1
				}
			}
			if pos != expected {
				return fmt.Errorf("%w: row %d: sequence %d continues at position %d, not %d", ErrBadBatch, row, s, expected, pos)
			}
			p.next = pos + 1
		}
	}
	return nil
}
