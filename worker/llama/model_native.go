//go:build llama && cgo

package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/cadence-slo/cadence/worker/gguf"
)

// Model is a loaded model, safe for use by any number of goroutines until it is closed.
type Model struct {
	facts     Facts
	vocab     *C.struct_llama_vocab // owned by model
	recursive bool                  // text needs cutRuns

	mu       sync.RWMutex // read-held during every use of model, so that Close waits
	model    *C.struct_llama_model
	contexts int // open ones, and grammars
}

// LoadModel loads a GGUF file. The error wraps that of the file system, one of package gguf for a file that is no whole model,
// [ErrUnsupported], or [ErrLoad] with what llama.cpp had to say.
func LoadModel(path string, options ModelOptions) (*Model, error) {
	if !started() {
		return nil, ErrNotInit
	}
	if err := options.Validate(); err != nil {
		return nil, err
	}
	// llama.cpp trusts files more than it should, and its messages name its own source lines.
	head, err := gguf.InspectFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLoad, err)
	}
	pre, err := choosePretokenizer(path, head)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLoad, err)
	}
	return loadModel(path, options, head, pre)
}

func loadModel(path string, options ModelOptions, head *gguf.File, pre pretokenizer) (*Model, error) {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	var cPre *C.char
	if pre.override != "" {
		cPre = C.CString(pre.override)
		defer C.free(unsafe.Pointer(cPre))
	}
	var text errorText
	model := C.cadence_model_load(cPath, C.cadence_model_options{
		gpu_layers: C.int32_t(options.GPULayers),
		mmap:       C.bool(options.Mmap),
		mlock:      C.bool(options.Mlock),
		repack:     C.bool(options.Repack),
		vocab_only: C.bool(options.VocabOnly),
	}, cPre, text.c())
	if model == nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrLoad, path, &text)
	}
	m := &Model{model: model, vocab: C.llama_model_get_vocab(model), recursive: pre.recursive}
	if err := m.check(options); err != nil {
		C.llama_model_free(model)
		return nil, fmt.Errorf("%w: %s", err, path)
	}
	m.facts = m.readFacts(path, head, options)
	return m, nil
}

// check refuses models whose memory is no KV cache of tokens: sequences could not be copied or cut.
func (m *Model) check(options ModelOptions) error {
	if C.llama_vocab_type(m.vocab) == C.LLAMA_VOCAB_TYPE_NONE || C.llama_vocab_n_tokens(m.vocab) < 1 {
		return fmt.Errorf("%w: it has no tokenizer", ErrUnsupported)
	}
	if options.VocabOnly {
		return nil
	}
	switch {
	case bool(C.llama_model_has_encoder(m.model)) || !bool(C.llama_model_has_decoder(m.model)):
		return fmt.Errorf("%w: it is no decoder-only model", ErrUnsupported)
	case bool(C.llama_model_is_recurrent(m.model)) || bool(C.llama_model_is_hybrid(m.model)):
		return fmt.Errorf("%w: it is recurrent", ErrUnsupported)
	case bool(C.llama_model_is_diffusion(m.model)):
		return fmt.Errorf("%w: it is a diffusion model", ErrUnsupported)
	}
	return nil
}

func (m *Model) readFacts(path string, head *gguf.File, options ModelOptions) Facts {
	var description [128]C.char
	C.llama_model_desc(m.model, &description[0], C.size_t(len(description)))
	f := Facts{
		Path:          path,
		Name:          head.Name,
		Architecture:  head.Architecture,
		Description:   C.GoString(&description[0]),
		Quantisation:  head.Quantisation,
		Parameters:    uint64(C.llama_model_n_params(m.model)),
		SizeBytes:     uint64(C.llama_model_size(m.model)),
		Vocab:         int(C.llama_vocab_n_tokens(m.vocab)),
		ContextTokens: int(min(head.ContextTokens, math.MaxInt32)),
		Layers:        int(min(head.Layers, math.MaxInt32)),
		KVBytes:       head.KVBytes,
		BOS:           Token(C.llama_vocab_bos(m.vocab)),
		EOS:           Token(C.llama_vocab_eos(m.vocab)),
		AddBOS:        bool(C.llama_vocab_get_add_bos(m.vocab)),
		AddEOS:        bool(C.llama_vocab_get_add_eos(m.vocab)),
		VocabOnly:     options.VocabOnly,
	}
	if f.Description == "" { // without weights
		f.Description = head.Architecture + " " + head.Quantisation
	}
	f.BOSText, f.EOSText = m.specialText(f.BOS, f.Vocab), m.specialText(f.EOS, f.Vocab)
	if template := C.llama_model_chat_template(m.model, nil); template != nil {
		f.ChatTemplate = C.GoString(template)
	}
	return f
}

func (m *Model) specialText(token Token, vocab int) string {
	if token < 0 || int(token) >= vocab {
		return ""
	}
	return C.GoString(C.llama_vocab_get_text(m.vocab, C.llama_token(token)))
}

// Facts tells what the model is. It may be called after Close.
func (m *Model) Facts() Facts { return m.facts }

// Metadata gives a metadata value of the file as text. Arrays are not available and count as absent.
func (m *Model) Metadata(key string) (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.model == nil {
		return "", false
	}
	cKey := C.CString(key)
	defer C.free(unsafe.Pointer(cKey))
	buffer := make([]byte, 256)
	for {
		n := int(C.llama_model_meta_val_str(m.model, cKey, (*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer))))
		if n < 0 {
			return "", false
		}
		if n < len(buffer) {
			return string(buffer[:n]), true
		}
		buffer = make([]byte, n+1)
	}
}

// IsEOG tells whether token ends generation: end of text, end of turn and the like. A token outside the vocabulary does not.
func (m *Model) IsEOG(token Token) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.model != nil && token >= 0 && int(token) < m.facts.Vocab && bool(C.llama_vocab_is_eog(m.vocab, C.llama_token(token)))
}

// IsControl tells whether token is a special one that has no text of its own. A token outside the vocabulary is not.
func (m *Model) IsControl(token Token) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.model != nil && token >= 0 && int(token) < m.facts.Vocab && bool(C.llama_vocab_is_control(m.vocab, C.llama_token(token)))
}

// Tokenize turns text into tokens. With addSpecial it adds what the model wants around a text, BOS for instance. With parseSpecial
// the names of special tokens in text become those tokens: right for a rendered chat template, wrong for what a user wrote. Each
// run of bytes that are no UTF-8 becomes one U+FFFD. The error wraps [ErrTokenize] or [ErrClosed].
func (m *Model) Tokenize(text string, addSpecial, parseSpecial bool) ([]Token, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.model == nil {
		return nil, ErrClosed
	}
	if len(text) > math.MaxInt32/2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrTokenize, len(text))
	}
	text = strings.ToValidUTF8(text, "\uFFFD") // what llama.cpp makes of such bytes depends on the model
	if !m.recursive {
		return m.tokenize(text, addSpecial, parseSpecial)
	}
	pieces := cutRuns(text)
	if len(pieces) == 1 {
		return m.tokenize(text, addSpecial, parseSpecial)
	}
	var tokens []Token
	if addSpecial && m.facts.AddBOS {
		tokens = append(tokens, m.facts.BOS)
	}
	for _, piece := range pieces {
		more, err := m.tokenize(piece, false, parseSpecial)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, more...)
	}
	if addSpecial && m.facts.AddEOS {
		tokens = append(tokens, m.facts.EOS)
	}
	return tokens, nil
}

func (m *Model) tokenize(text string, addSpecial, parseSpecial bool) ([]Token, error) {
	data := unsafe.StringData(text)
	if text == "" {
		data = new(byte)
	}
	// Mostly a token takes more than two bytes; text that needs more room is tokenized again.
	tokens := make([]Token, len(text)/2+8)
	for {
		var reason errorText
		n := int(C.cadence_tokenize(m.vocab, (*C.char)(unsafe.Pointer(data)), C.int32_t(len(text)), (*C.llama_token)(unsafe.SliceData(tokens)),
			C.int32_t(len(tokens)), C.bool(addSpecial), C.bool(parseSpecial), reason.c()))
		switch {
		case n >= 0:
			return tokens[:n], nil
		case n == C.CADENCE_EXCEPTION && reason[0] != 0, n == math.MinInt32:
			return nil, fmt.Errorf("%w: %s", ErrTokenize, &reason)
		}
		tokens = make([]Token, -n)
	}
}

// AppendPiece appends the bytes of token to dst and returns it; a character can spread over several tokens, so the bytes need not be
// UTF-8 by themselves. Special tokens have their name as text, and none unless special is set. Nothing is allocated when
// dst has room. The error wraps [ErrBadToken] or [ErrClosed].
func (m *Model) AppendPiece(dst []byte, token Token, special bool) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.model == nil {
		return dst, ErrClosed
	}
	if token < 0 || int(token) >= m.facts.Vocab {
		return dst, fmt.Errorf("%w: %d, allowed: 0 to %d", ErrBadToken, token, m.facts.Vocab-1)
	}
	dst = slices.Grow(dst, 1) // so that there is a byte to point at
	for {
		room := dst[len(dst):cap(dst)]
		n := int(C.cadence_piece(m.vocab, C.llama_token(token), (*C.char)(unsafe.Pointer(&room[0])), C.int32_t(len(room)), C.bool(special)))
		if n >= 0 {
			return dst[:len(dst)+n], nil
		}
		dst = slices.Grow(dst, -n)
	}
}

// Close frees the model. It returns [ErrInUse], and frees nothing, while a context is open; further calls return nil.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.contexts > 0 {
		return fmt.Errorf("%w: %d", ErrInUse, m.contexts)
	}
	if m.model != nil {
		C.llama_model_free(m.model)
		m.model = nil
	}
	return nil
}
