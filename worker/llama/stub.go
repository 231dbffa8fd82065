//go:build !llama || !cgo

package llama

import "log/slog"

// Built tells whether llama.cpp is part of this binary.
const Built = false

// Init returns [ErrNotBuilt].
func Init(*slog.Logger, string) error { return ErrNotBuilt }

// Devices returns [ErrNotBuilt].
func Devices() ([]Device, error) { return nil, ErrNotBuilt }

// SystemInfo returns [ErrNotBuilt].
func SystemInfo() (string, error) { return "", ErrNotBuilt }

// Model cannot be made in this build; its methods exist so that callers compile.
type Model struct{}

// LoadModel returns [ErrNotBuilt].
func LoadModel(string, ModelOptions) (*Model, error) { return nil, ErrNotBuilt }

// Facts is empty.
func (*Model) Facts() Facts { return Facts{} }

// Metadata has nothing.
func (*Model) Metadata(string) (string, bool) { return "", false }

// IsEOG is false.
func (*Model) IsEOG(Token) bool { return false }

// IsControl is false.
func (*Model) IsControl(Token) bool { return false }

// Tokenize returns [ErrNotBuilt].
func (*Model) Tokenize(string, bool, bool) ([]Token, error) { return nil, ErrNotBuilt }

// AppendPiece returns [ErrNotBuilt].
func (*Model) AppendPiece(dst []byte, _ Token, _ bool) ([]byte, error) { return dst, ErrNotBuilt }

// Close does nothing.
func (*Model) Close() error { return nil }

// Context cannot be made in this build; its methods exist so that callers compile.
type Context struct{}

// NewContext returns [ErrNotBuilt].
func NewContext(*Model, ContextOptions) (*Context, error) { return nil, ErrNotBuilt }

// Options is empty.
func (*Context) Options() ContextOptions { return ContextOptions{} }

// Model is nil.
func (*Context) Model() *Model { return nil }

// Decode returns [ErrNotBuilt].
func (*Context) Decode(*Batch) error { return ErrNotBuilt }

// Logits returns [ErrNotBuilt].
func (*Context) Logits(int) ([]float32, error) { return nil, ErrNotBuilt }

// Interrupt does nothing.
func (*Context) Interrupt() {}

// SetThreads returns [ErrNotBuilt].
func (*Context) SetThreads(int, int) error { return ErrNotBuilt }

// SeqCopy returns [ErrNotBuilt].
func (*Context) SeqCopy(SeqID, SeqID, Pos, Pos) error { return ErrNotBuilt }

// SeqRebase returns [ErrNotBuilt].
func (*Context) SeqRebase(SeqID, SeqID, Pos) error { return ErrNotBuilt }

// SeqRemove returns [ErrNotBuilt].
func (*Context) SeqRemove(SeqID, Pos, Pos) error { return ErrNotBuilt }

// SeqPosMax returns [ErrNotBuilt].
func (*Context) SeqPosMax(SeqID) (Pos, error) { return -1, ErrNotBuilt }

// Clear does nothing.
func (*Context) Clear() {}

// Close does nothing.
func (*Context) Close() error { return nil }

// Grammar cannot be made in this build; its methods exist so that callers compile.
type Grammar struct{}

// NewGrammar returns [ErrNotBuilt].
func NewGrammar(*Model, string) (*Grammar, error) { return nil, ErrNotBuilt }

// Allowed returns [ErrNotBuilt].
func (*Grammar) Allowed([]Token, []bool) error { return ErrNotBuilt }

// Accept returns [ErrNotBuilt].
func (*Grammar) Accept(Token) error { return ErrNotBuilt }

// Close does nothing.
func (*Grammar) Close() {}
