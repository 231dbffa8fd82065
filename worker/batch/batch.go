package batch

import "time"

// ID names a sequence in a Planner. The caller chooses it; it is never used twice while known.
type ID uint64

// SeqID names a sequence's place in the engine's KV cache, in [0, Config.Sequences).
type SeqID int32

// Sequence is work for the engine: tokens to prefill and how many to generate.
type Sequence struct {
	ID ID
	// Prompt is what to prefill, at least one token. The Planner copies it when the sequence is admitted and reads it
	// until then.
	Prompt []int32
	// MaxNew bounds the generated tokens, ≥ 1.
	MaxNew int
}

// Batch is one step of the engine. It belongs to the Planner and is valid until the Commit that answers it.
type Batch struct {
	Step    uint64 // from 1
	Entries []Entry
	// PrefillTokens is the number of tokens in prefill entries, Decodes the number of decode entries, ContextTokens the
	// tokens that the entries' sequences hold after the step.
	PrefillTokens, Decodes, ContextTokens int
}

// Entry is one sequence's share of a step. No sequence has two.
type Entry struct {
	ID  ID
	Seq SeqID
	// Pos is the position of Tokens[0]; the sequence's cells [0, Pos) are filled.
	Pos int32
	// Tokens is what to feed, at least one. It aliases the Planner's memory.
	Tokens []int32
	// Sample asks for the token that follows the last of Tokens, at position Pos + len(Tokens).
	Sample bool
	// Start marks a sequence's first entry: its place in the KV cache was another's before.
	Start bool
	// Prefill marks tokens that were there before (the prompt); otherwise Tokens is the one that was sampled last.
	Prefill bool

	slot int
}

// Row is what a step brought for the entry of the same index.
type Row struct {
	Token int32 // if the entry's Sample was set
	Stop  bool  // Token ends the sequence: end of text or a stop string
	Err   error // fails this sequence alone
}

// Kind is what an Outcome tells.
type Kind uint8

// The kinds. All but KindToken end the sequence: the Planner forgets it and hands out its SeqID again, so that the
// backend must drop it before the next step.
const (
	KindToken     Kind = iota // a token, and more to come
	KindStop                  // a token, and it ended the sequence
	KindLength                // a token, the last of MaxNew
	KindFailed                // Err
	KindCancelled             // by Cancel
)

// Ended reports whether the sequence is gone.
func (k Kind) Ended() bool { return k != KindToken }

// Outcome is what a Commit or a Cancel did to one sequence.
type Outcome struct {
	ID   ID
	Kind Kind
	// Seq is where the sequence was, or -1 if it was never admitted.
	Seq   SeqID
	Token int32 // for KindToken, KindStop and KindLength
	Index int   // of Token among the generated; otherwise the number of generated tokens
	Err   error // for KindFailed
	// Added, Started, First and Last are the times of Add, of the first Plan with it, and of its first and last
	// generated token; zero until then.
	Added, Started, First, Last time.Duration
}

// Usage is how full the engine is.
type Usage struct {
	Running, Waiting int
	FreeSequences    int
	FreePages        int // not reserved by a running sequence
	UsedPages        int // that hold tokens now
}

// Slice returns the part of the batch with Entries[from:to].
func (b *Batch) Slice(from, to int) Batch {
	part := Batch{Step: b.Step, Entries: b.Entries[from:to]}
	for i := range part.Entries {
		e := &part.Entries[i]
		if e.Prefill {
			part.PrefillTokens += len(e.Tokens)
		} else {
			part.Decodes++
		}
		part.ContextTokens += int(e.Pos) + len(e.Tokens)
	}
	return part
}
