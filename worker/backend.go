package worker

import (
	"errors"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrBackend is wrapped by what Run returns when the engine itself is broken, not a request.
var ErrBackend = errors.New("worker: the engine does not work any more")

// Info says what a Backend is. It does not change in its life.
type Info struct {
	Backend     string // kind: llamacpp, mock
	Model       string // the name that requests ask for
	Fingerprint string // of engine, weights and settings: equal ones give equal answers
	// ContextTokens is the longest prompt + output, Sequences the number of sequence ids, KVCells the tokens that all
	// sequences hold together, BatchTokens the most that one step feeds, Vocab the number of token ids.
	ContextTokens, Sequences, KVCells, BatchTokens, Vocab int
}

// Start tells a Backend whose tokens come next in a sequence. The slices are only lent for the call.
type Start struct {
	Request   schema.RequestID
	Attempt   uint32
	Prompt    []int32 // what the client sent
	Output    []int32 // what earlier attempts generated; prefilled after Prompt
	Sampling  schema.Sampling
	IgnoreEOS bool
}

// Backend executes batches. One goroutine owns it and calls its methods, except Info, which anyone may call.
//
// Life of a sequence id: Start, then Steps with entries of it whose first has Entry.Start, then Drop. After Drop the
// id may be started anew.
type Backend interface {
	Info() Info

	// Start prepares seq, which holds nothing. An error fails this request alone; seq is then dropped.
	Start(seq batch.SeqID, s *Start) error

	// Step feeds every entry's tokens and writes to rows[i], for each entry i with Sample set, the token that follows or
	// why there is none: Row.Err fails that request alone (a row of NaN). If Step returns an error, no sequence has
	// moved and rows mean nothing: the worker tries smaller batches to find who is to blame.
	//
	// The token of a sequence depends on its own tokens, parameters and position only, up to rounding.
	Step(b *batch.Batch, rows []batch.Row) error

	// Drop forgets all of seq and frees its cells.
	Drop(seq batch.SeqID)

	// AppendPiece appends a token's bytes as a client may see them: nothing for a control token; not always whole
	// characters.
	AppendPiece(dst []byte, token int32) ([]byte, error)

	// EOG reports whether the model ends its answer with this token.
	EOG(token int32) bool

	// Close frees the engine. Nothing is called after it.
	Close() error
}
