package gguf

import (
	"fmt"
	"strings"
)

// Special tokens of a synthetic model, in the order of their ids; they follow the ordinary tokens.
const (
	EndOfText = "<|endoftext|>" // also begins and pads a text, as in Qwen2.5
	TurnStart = "<|im_start|>"
	TurnEnd   = "<|im_end|>" // ends generation
)

var specialTokens = [...]string{EndOfText, TurnStart, TurnEnd}

// maxVocab is below what the word list and the syllables can fill.
const maxVocab = 300_000

// ChatTemplate is the Jinja template in a synthetic model's metadata: ChatML in the manner of Qwen2.5, with a default system message.
const ChatTemplate = `{%- if messages[0]['role'] != 'system' %}{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{%- endif %}` +
	`{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{%- endfor %}` +
	`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

// Codes of tokenizer.ggml.token_type.
const (
	tokenNormal  = 1
	tokenControl = 3
	tokenUnused  = 5
)

// commonWords gives ordinary English a realistic length in tokens.
const commonWords = `the of and to in is that for it as was with be by on not he this are or his from at which but have an had they you were
their one all we can her has there been if more when will would who so no what up out them then than into some could time very these two may only do other
its over such even most made after also many before must through years where much your way well down should because each just those people how too little
state good make world still own see men work long get here between both life being under never day same another know while last might us great old year off
come since against go came right used take three states himself few house use during without again place around however small home found question system
model token cache prefix request batch prompt answer write code function return error user assistant helpful server memory number data example list value
please explain following language summary story short question context document table column hello thanks sure first second about using different important
because problem result change program computer science history water light music family children government company market`

// vocabulary is a byte-level BPE tokenizer: what tokenizer.ggml.* holds.
type vocabulary struct {
	tokens  []string // spelled in GPT-2's byte alphabet; len = Spec.Vocab
	types   []int32  // len = len(tokens)
	merges  []string // "left right", most important first
	silent  []bool   // tokens that must never win: their output row is zero; len = len(tokens)
	endText uint32   // id of EndOfText
	endTurn uint32   // id of TurnEnd
}

// byteAlphabet is GPT-2's one-to-one map from bytes to printable characters, in which byte-level vocabularies are spelled.
func byteAlphabet() [256]string {
	var alphabet [256]string
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE && r <= 0xFF) {
			r = next
			next++
		}
		alphabet[b] = string(r)
	}
	return alphabet
}

// vocabularyBuilder adds tokens until limit is reached.
type vocabularyBuilder struct {
	vocabulary
	seen  map[string]bool
	limit int
}

// merge adds the token left+right and the merge that makes it; both halves are tokens already. It reports whether there is room for more.
func (b *vocabularyBuilder) merge(left, right string) bool {
	if token := left + right; !b.seen[token] {
		if len(b.tokens) >= b.limit {
			return false
		}
		b.add(token, tokenNormal)
		b.merges = append(b.merges, left+" "+right)
	}
	return true
}

func (b *vocabularyBuilder) add(token string, kind int32) {
	b.seen[token] = true
	b.tokens = append(b.tokens, token)
	b.types = append(b.types, kind)
}

// word adds a word as the chain of its prefixes.
func (b *vocabularyBuilder) word(characters []string) bool {
	prefix := characters[0]
	for _, c := range characters[1:] {
		if !b.merge(prefix, c) {
			return false
		}
		prefix += c
	}
	return true
}

// syllables fills the vocabulary with pronounceable words of one, two and three syllables, shortest first.
func (b *vocabularyBuilder) syllables(space string) {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var plain []string
	for _, c := range consonants {
		for _, v := range vowels {
			if !b.merge(string(c), string(v)) {
				return
			}
			plain = append(plain, string(c)+string(v))
		}
	}
	for _, s := range plain {
		if !b.merge(space, s) {
			return
		}
	}
	for _, first := range plain {
		for _, second := range plain {
			if !b.merge(space+first, second) {
				return
			}
		}
	}
	for _, first := range plain {
		for _, second := range plain {
			if !b.merge(first, second) {
				return
			}
		}
	}
	for _, third := range plain { // first varies fastest, so that a cut list still has words with every beginning
		for _, second := range plain {
			for _, first := range plain {
				if !b.merge(space+first+second, third) {
					return
				}
			}
		}
	}
}

// newVocabulary builds the tokenizer of a shape: 256 bytes, words, syllables, specials, padding.
func newVocabulary(s Spec) (vocabulary, error) {
	alphabet := byteAlphabet()
	b := vocabularyBuilder{seen: make(map[string]bool, s.Vocab), limit: s.Vocab - s.Padding - len(specialTokens)}
	for _, c := range alphabet {
		b.add(c, tokenNormal)
	}
	space := alphabet[' ']
words:
	for _, w := range strings.Fields(commonWords) {
		letters := strings.Split(w, "")
		for _, spelled := range [][]string{append([]string{space}, letters...), letters} {
			if !b.word(spelled) {
				break words
			}
		}
	}
	b.syllables(space)
	if len(b.tokens) != b.limit {
		return vocabulary{}, fmt.Errorf("%w: Vocab is %d, but only %d tokens can be made", ErrSpec, s.Vocab, len(b.tokens))
	}
	v := &b.vocabulary
	v.endText, v.endTurn = uint32(b.limit), uint32(b.limit+len(specialTokens)-1)
	for _, t := range specialTokens {
		b.add(t, tokenControl)
	}
	for i := range s.Padding {
		b.add(fmt.Sprintf("[PAD%d]", i), tokenUnused)
	}
	// A random model must not end its turn by accident, and what it says must be text: specials, padding, control
	// characters and the lone bytes of multi-byte characters are silent.
	v.silent = make([]bool, s.Vocab)
	for id, kind := range v.types {
		v.silent[id] = kind != tokenNormal || id < 256 && (id < ' ' || id > '~')
	}
	return *v, nil
}
