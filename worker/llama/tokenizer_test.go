//go:build llama && cgo

package llama

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cadence-slo/cadence/worker/gguf"
)

// texts mixes what the pre-tokenizers treat differently.
func texts(seed uint64, n int) []string {
	parts := []string{
		"hello", "World", "I'M", "it's", "we'll", "'", "''s", " ", "  ", "\t", "\n", "\r\n", "\n\n\n", "1", "12", "1234567", "3.14", "٣٤٥", "²³", "½", "Ⅷ",
		"über", "naïve", "e\u0301e\u0301", "日本語", "中文，标点。", "한국어", "العربية", "हिन्दी", "🙂", "👩‍👩‍👧", "\u00a0", "\u2003", "\u200b", "\u0085", "!", "?!...", "==", "#$%", "_a_", "<|", "|>",
		"<|im_start|>", "a1b2", "\x00", "\x7f", "\u0301", "ſ", "İ", "ß", "don’t", "{\"k\": [1, 2]}", "https://example.org/?q=1&r=2", "\\p{L}",
	}
	r := rand.New(rand.NewPCG(seed, 1))
	out := slices.Clone(parts)
	for range n {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			b.WriteString(parts[r.IntN(len(parts))])
			if r.IntN(3) == 0 {
				b.WriteByte(' ')
			}
		}
		out = append(out, b.String())
	}
	return out
}

func detokenize(t *testing.T, m *Model, tokens []Token, special bool) string {
	t.Helper()
	var b []byte
	for _, token := range tokens {
		var err error
		if b, err = m.AppendPiece(b, token, special); err != nil {
			t.Fatal(err)
		}
	}
	return string(b)
}

func TestTokenizerRoundTrip(t *testing.T) {
	for _, name := range []string{"tiny", "small"} {
		m := loadTest(t, name, ModelOptions{VocabOnly: true})
		for _, text := range append(texts(1, 300), "", chat) {
			tokens, err := m.Tokenize(text, false, false)
			if err != nil {
				t.Fatal(err)
			}
			if got := detokenize(t, m, tokens, false); got != text {
				t.Errorf("%s: %q comes back as %q", name, text, got)
			}
		}
	}
}

func TestTokenizerInvalidUTF8(t *testing.T) {
	m := loadTest(t, "tiny", ModelOptions{VocabOnly: true})
	for text, want := range map[string]string{
		"\xff": "\uFFFD", "a\xc3": "a\uFFFD", "\xed\xa0\x80": "\uFFFD", "ok \xf0\x9f\x99 ok": "ok \uFFFD ok", strings.Repeat("\x80", 5000): "\uFFFD",
	} {
		if got := detokenize(t, m, tokenize(t, m, text), false); got != want {
			t.Errorf("%q comes back as %q, want %q", text, got, want)
		}
	}
}

func TestSpecialTokensOnlyWhenAsked(t *testing.T) {
	m := loadTest(t, "tiny", ModelOptions{VocabOnly: true})
	end := m.Facts().EOS
	parsed := tokenize(t, m, "a"+gguf.TurnEnd+"b")
	if !slices.Equal(parsed, []Token{'a', end, 'b'}) {
		t.Errorf("parsed: %v", parsed)
	}
	plain, err := m.Tokenize("a"+gguf.TurnEnd+"b", true, false)
	if err != nil || slices.Contains(plain, end) || detokenize(t, m, plain, false) != "a"+gguf.TurnEnd+"b" {
		t.Errorf("not parsed: %v, %v", plain, err)
	}
	if got := detokenize(t, m, parsed, false); got != "ab" {
		t.Errorf("special tokens have text %q unasked", got)
	}
	if got := detokenize(t, m, parsed, true); got != "a"+gguf.TurnEnd+"b" {
		t.Errorf("special tokens have text %q", got)
	}
}

func TestBadTokenIsAnError(t *testing.T) {
	m := loadTest(t, "tiny", ModelOptions{VocabOnly: true})
	for _, token := range []Token{-1, 4096, 1 << 30, -1 << 31} {
		if got, err := m.AppendPiece([]byte("x"), token, true); !errors.Is(err, ErrBadToken) || string(got) != "x" {
			t.Errorf("token %d: %q, %v", token, got, err)
		}
	}
}

func TestAppendPieceDoesNotAllocate(t *testing.T) {
	m := loadTest(t, "tiny", ModelOptions{VocabOnly: true})
	buffer := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := m.AppendPiece(buffer, 300, false); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestVocabOnlyTokenizesTheSame(t *testing.T) {
	whole, vocab := loadTest(t, "tiny", DefaultModelOptions()), loadTest(t, "tiny", ModelOptions{VocabOnly: true})
	for _, text := range append(texts(2, 100), chat) {
		if a, b := tokenize(t, whole, text), tokenize(t, vocab, text); !slices.Equal(a, b) {
			t.Errorf("%q: %v with weights, %v without", text, a, b)
		}
	}
	a, b := whole.Facts(), vocab.Facts()
	a.VocabOnly, a.Description, b.Description = true, "", ""
	if a != b {
		t.Errorf("facts differ: %+v and %+v", a, b)
	}
	if _, err := NewContext(vocab, smallContext()); !errors.Is(err, ErrVocabOnly) {
		t.Errorf("context without weights: %v", err)
	}
}

func TestTokenizingConcurrently(t *testing.T) {
	m := loadTest(t, "tiny", ModelOptions{VocabOnly: true})
	all := texts(3, 50)
	var want [][]Token
	for _, text := range all {
		want = append(want, tokenize(t, m, text))
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i, text := range all {
				got, err := m.Tokenize(text, true, true)
				if err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("%q: %v, %v, want %v", text, got, err, want[i])
				}
			}
		})
	}
	group.Wait()
}

// loadAs loads the small model's tokenizer with a pre-tokenizer of choice.
func loadAs(t testing.TB, pre pretokenizer) *Model {
	t.Helper()
	path := modelFile(t, "small")
	head, err := gguf.InspectFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := loadModel(path, ModelOptions{VocabOnly: true}, head, pre)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// The fast rule for Qwen2's pre-tokenizer must not change a single token.
func TestPretokenizerOverrideIsEquivalent(t *testing.T) {
	slow, fast := loadAs(t, pretokenizer{recursive: true}), loadTest(t, "small", ModelOptions{VocabOnly: true})
	if fast.recursive {
		t.Fatal("the fast rule was not chosen")
	}
	for _, text := range append(texts(4, 400), chat) {
		if a, b := tokenize(t, slow, text), tokenize(t, fast, text); !slices.Equal(a, b) {
			t.Errorf("%q: %v by the file's rule, %v by the fast one", text, a, b)
		}
	}
}

// Long runs overflow the C stack unless they are cut.
func TestLongRunsDoNotCrash(t *testing.T) {
	for name, m := range map[string]*Model{"slow": loadAs(t, pretokenizer{recursive: true}), "fast": loadTest(t, "small", ModelOptions{VocabOnly: true})} {
		for _, s := range []string{"a", " ", "!", "7", "\n", "é", "日"} {
			text := strings.Repeat(s, 60_000)
			if got := detokenize(t, m, tokenize(t, m, text), false); got != text {
				t.Errorf("%s: 60000 × %q come back as %d bytes", name, s, len(got))
			}
		}
	}
}
