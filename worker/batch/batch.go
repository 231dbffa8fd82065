package batch

import (
	"math"
	"time"

	"github.com/cadence-slo/cadence/predictor/deadline"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/kv"
)

// ID names a sequence in a Planner. The caller chooses it; it is never used twice while known.
type ID uint64

// SeqID names a sequence of cells in the engine's KV cache, in [0, Config.Sequences).
type SeqID = kv.SeqID

// Sequence is work for the engine: tokens to prefill and how many to generate.
type Sequence struct {
	ID ID
	// Prompt is what to prefill, at least one token. The Planner copies it when the sequence is admitted and reads it
	// until then.
	Prompt []int32
	// MaxNew bounds the generated tokens, ≥ 1. MinNew is how many there will be at least, in [1, MaxNew]; 0 is 1.
	MaxNew, MinNew int
	// Scope bounds what may be shared: prefixes are found only among sequences of an equal scope.
	Scope string
	// Priority and Deadline choose who is preempted when pages run out: the lowest priority first, then the latest
	// deadline; a Deadline of 0 is none, and later than any. Those of a Priority above 0 also wait before the others.
	Priority int
	Deadline time.Duration
	// FirstDeadline is that of the first token; 0 is none. It counts where there is no Deadline.
	FirstDeadline time.Duration
	// OnDeadline says what becomes of it once it cannot keep its deadlines any more; empty is demote.
	OnDeadline schema.OnDeadline
}

// Promise is what a request was promised, and what is to become of it where that cannot be kept.
type Promise struct {
	Class      schema.Class
	OnDeadline schema.OnDeadline
	Left       deadline.Left // when it arrived
}

// Promise sets Priority, the deadlines and OnDeadline of a sequence that arrived then.
func (s *Sequence) Promise(p Promise, arrived time.Duration) {
	s.Priority, s.OnDeadline = 0, p.OnDeadline
	if p.Class == schema.Guaranteed {
		s.Priority = 1
	}
	s.Deadline, s.FirstDeadline = until(arrived, p.Left.E2E), until(arrived, p.Left.TTFT)
}

// until is the time at which what is left is over: 0 if there is no objective, and never 0 if there is.
func until(now, left time.Duration) time.Duration {
	switch {
	case left == 0:
		return 0
	case left > math.MaxInt64-max(now, 0):
		return math.MaxInt64
	}
	return max(1, now+left)
}

// Move is what a backend must do to its cells. Sequences share cells, so that a move copies no data.
type Move struct {
	Kind MoveKind
	// Src and Dst are sequence ids; Src is of no meaning in a MoveTrim.
	Src, Dst SeqID
	Tokens   int
}

// MoveKind says what a Move does.
type MoveKind uint8

// The moves.
const (
	MoveCopy   MoveKind = iota // Dst, which is empty, gets Src's cells at positions [0, Tokens)
	MoveTrim                   // Dst keeps its cells at [0, Tokens) and forgets the rest; 0: it is empty
	MoveRebase                 // Dst's cells at [0, Tokens) become Src's, which hold equal tokens
)

// Batch is one step of the engine. It belongs to the Planner and is valid until the Commit that answers it.
type Batch struct {
	Step    uint64 // from 1
	Entries []Entry
	// PrefillTokens is the number of tokens in prefill entries, Decodes the number of decode entries, ContextTokens the
	// tokens that the entries' sequences hold after the step.
	PrefillTokens, Decodes, ContextTokens int
	// Preempted sequences gave up their cells for this step. They wait again, ahead of the others, and will prefill what
	// they had generated, too: their next entry has Start.
	Preempted []Preemption
}

// Preemption tells that a sequence lost its place.
type Preemption struct {
	ID        ID
	Generated int // tokens so far
	Fed       int // tokens whose cells it held
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
	// Start marks a sequence's first entry, also the first after a preemption. Pos may be above 0 then: the cells before
	// it were copied from a cached prefix.
	Start bool
	// Prefill marks tokens that were there before: the prompt, and after a preemption what was generated. Otherwise
	// Tokens is the one that was sampled last.
	Prefill bool

	slot int
}

// Row is what a step brought for the entry of the same index.
type Row struct {
	Token int32 // if the entry's Sample was set
	Stop  bool  // Token ends the sequence: end of text or a stop string
	Wait  bool  // nothing has moved: the entry comes again in the next step
	Err   error // fails this sequence alone
	// Logprobs are those of Token, if they were asked for: the backend's memory, valid until the next step.
	Logprobs *schema.Logprobs
}

// Kind is what an Outcome tells.
type Kind uint8

// The kinds. All but KindToken end the sequence; what that means for its cells is among the moves.
const (
	KindToken     Kind = iota // a token, and more to come
	KindStop                  // a token, and it ended the sequence
	KindLength                // a token, the last of MaxNew
	KindFailed                // Err
	KindCancelled             // by Cancel
	KindDeadline              // its deadlines cannot be kept any more, and its OnDeadline is to cancel it then
)

// Ended reports whether the sequence is gone.
func (k Kind) Ended() bool { return k != KindToken }

// Outcome is what a Commit or a Cancel did to one sequence.
type Outcome struct {
	ID   ID
	Kind Kind
	// Seq is where the sequence was, or -1 if it waited.
	Seq   SeqID
	Token int32 // for KindToken, KindStop and KindLength
	Index int   // of Token among the generated; otherwise the number of generated tokens
	Err   error // for KindFailed
	// Cached counts the tokens of the prompt that were found in the prefix cache when the sequence was first admitted.
	Cached int
	// Added, Started, First and Last are the times of Add, of the first Plan with it, and of its first and last
	// generated token; zero until then.
	Added, Started, First, Last time.Duration
}

// Usage is how full the engine is.
type Usage struct {
	Running, Waiting int
	FreeSequences    int // neither running nor of a cached prefix
	FreePages        int // free now, or as soon as the prefix cache gives them up
	UsedPages        int // referred to by running sequences or the prefix cache
	CachedPages      int // referred to by the prefix cache
	PromisedPages    int // the peaks of running sequences
	HighWaterPages   int // one more than the highest page in use now; it falls again. 0: none is
	// FragmentationRatio is the share of reserved room that holds no token, in [0, 1].
	FragmentationRatio float64
}

// Totals counts what has happened since the Planner was made.
type Totals struct {
	PromptTokens  uint64 // of admitted sequences
	CachedTokens  uint64 // of PromptTokens, found in the prefix cache
	Preemptions   uint64
	WastedTokens  uint64 // computed, given up by a preemption, and not found in the prefix cache afterwards
	Evictions     uint64 // of leaves of the prefix cache
	PageCopies    uint64 // pages copied because they were shared and had to be written
	RebasedTokens uint64 // computed twice at the same time, and freed when that was seen
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
