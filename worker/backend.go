package worker

import (
	"errors"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
)

// ErrBackend is wrapped by what Run returns when the engine itself is broken, not a request.
var ErrBackend = errors.New("worker: the engine does not work any more")

// ErrUnsupported is returned for a request that asks for what the engine cannot do: see Info.
var ErrUnsupported = errors.New("worker: the engine cannot do this")

// Info says what a Backend is. It does not change in its life.
type Info struct {
	Backend     string // kind: llamacpp, mock
	Model       string // the name that requests ask for
	Fingerprint string // of engine, weights and settings: equal ones give equal answers
	// ContextTokens is the longest prompt + output, Sequences the number of sequence ids, KVCells the tokens that all
	// sequences hold together, BatchTokens the most that one step feeds, Vocab the number of token ids.
	ContextTokens, Sequences, KVCells, BatchTokens, Vocab int
	// Sharing reports whether sequences can share cells: Apply knows every move. Otherwise it gets only MoveTrim to 0.
	Sharing bool
	// Logprobs reports whether Step tells log-probabilities, Grammars whether it keeps to grammars. Requests that ask for
	// what is not there fail with ErrUnsupported before Start.
	Logprobs, Grammars bool
}

// Start tells a Backend whose tokens come next in a sequence. The slices are only lent for the call.
type Start struct {
	Request   schema.RequestID
	Attempt   uint32
	Prompt    []int32 // what the client sent
	Output    []int32 // what earlier attempts generated; prefilled after Prompt
	MaxNew    int     // tokens to generate after Output, at most
	Sampling  schema.Sampling
	IgnoreEOS bool
	Logprobs  int32  // as in schema.Request
	Grammar   string // in GBNF, which Output has begun; empty: any text will do
}

// Backend executes batches. One goroutine owns it and calls its methods, except Info, which anyone may call.
//
// Life of a sequence id: Start, after moves that may have given it a prefix of its tokens, then Steps with entries of it
// whose first has Entry.Start, then a move that trims it: to nothing, or to a prefix that is kept for others to copy.
// Start may come again (after a preemption), for a sequence id that was trimmed to nothing before.
type Backend interface {
	Info() Info

	// Start prepares seq for a request: its parameters, and state that follows from the tokens so far. Its cells are
	// none of Start's business. An error fails this request alone.
	Start(seq batch.SeqID, s *Start) error

	// Apply does to the cells what m says. An error means that the engine is broken.
	Apply(m batch.Move) error

	// Step feeds every entry's tokens and writes to rows[i], for each entry i with Sample set, the token that follows or
	// why there is none: Row.Err fails that request alone (a row of NaN), Row.Wait says that nothing has moved and the entry
	// is to come again. Row.Logprobs is set where Start asked for it. If Step returns an error, no sequence has moved and rows mean nothing: the worker tries smaller
	// batches to find who is to blame.
	//
	// The token of a sequence depends on its own tokens, parameters and position only, up to rounding.
	Step(b *batch.Batch, rows []batch.Row) error

	// AppendPiece appends a token's bytes as a client may see them: nothing for a control token; not always whole
	// characters.
	AppendPiece(dst []byte, token int32) ([]byte, error)

	// EOG reports whether the model ends its answer with this token.
	EOG(token int32) bool

	// Close frees the engine. Nothing is called after it.
	Close() error
}
