//go:build llama && cgo

package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Grammar is one sequence's place in a grammar. It belongs to one goroutine.
type Grammar struct {
	model   *Model
	grammar *C.cadence_grammar // nil once closed
	reason  errorText
}

// NewGrammar returns the beginning of a grammar in GBNF, llama.cpp's notation, with the start symbol root. The error wraps
// [ErrGrammar] or [ErrClosed].
func NewGrammar(m *Model, gbnf string) (*Grammar, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.model == nil {
		return nil, ErrClosed
	}
	if gbnf == "" || strings.ContainsRune(gbnf, 0) {
		return nil, fmt.Errorf("%w: it is empty or has a zero byte", ErrGrammar)
	}
	text := C.CString(gbnf)
	defer C.free(unsafe.Pointer(text))
	g := &Grammar{model: m}
	if g.grammar = C.cadence_grammar_new(m.vocab, text, g.reason.c()); g.grammar == nil {
		return nil, fmt.Errorf("%w: %s", ErrGrammar, &g.reason)
	}
	m.contexts++
	return g, nil
}

// Allowed sets ok[i] to whether tokens[i] may come next; both have the same length. The end of generation may where the
// grammar is complete; a token without text, and one that makes the text other than UTF-8, never may. The error wraps
// [ErrBadToken], [ErrGrammar] or [ErrClosed].
func (g *Grammar) Allowed(tokens []Token, ok []bool) error {
	if err := g.check(tokens); err != nil || len(tokens) == 0 {
		return err
	}
	ok = ok[:len(tokens)]
	if C.cadence_grammar_allowed(g.grammar, C.int32_t(len(tokens)), (*C.llama_token)(unsafe.SliceData(tokens)),
		(*C.bool)(unsafe.SliceData(ok)), g.reason.c()) != 0 {
		return fmt.Errorf("%w: %s", ErrGrammar, &g.reason)
	}
	return nil
}

// Accept moves on by a token. The error wraps [ErrNotAllowed], after which the grammar is where it was, or those of
// [Grammar.Allowed].
func (g *Grammar) Accept(token Token) error {
	if err := g.check([]Token{token}); err != nil {
		return err
	}
	switch C.cadence_grammar_accept(g.grammar, C.llama_token(token), g.reason.c()) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %d", ErrNotAllowed, token)
	}
	return fmt.Errorf("%w: %s", ErrGrammar, &g.reason)
}

// check guards against tokens that llama.cpp aborts on.
func (g *Grammar) check(tokens []Token) error {
	if g.grammar == nil {
		return ErrClosed
	}
	for _, token := range tokens {
		if token < 0 || int(token) >= g.model.facts.Vocab {
			return fmt.Errorf("%w: %d, allowed: 0 to %d", ErrBadToken, token, g.model.facts.Vocab-1)
		}
	}
	return nil
}

// Close frees the grammar, before its model. Further calls do nothing.
func (g *Grammar) Close() {
	if g.grammar == nil {
		return
	}
	C.cadence_grammar_free(g.grammar)
	g.grammar = nil
	g.model.mu.Lock()
	g.model.contexts--
	g.model.mu.Unlock()
}
