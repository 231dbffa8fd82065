//go:build llama && cgo

package llama

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/grammar"
	"github.com/cadence-slo/cadence/worker/grammar/grammartest"
)

func newGrammar(t testing.TB, m *Model, gbnf string) *Grammar {
	t.Helper()
	g, err := NewGrammar(m, gbnf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// allows asks about single bytes, which are tokens of the test's models.
func allows(t testing.TB, g *Grammar, token Token) bool {
	t.Helper()
	var ok [1]bool
	if err := g.Allowed([]Token{token}, ok[:]); err != nil {
		t.Fatal(err)
	}
	return ok[0]
}

func TestGrammarSteps(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	eos := m.Facts().EOS
	g := newGrammar(t, m, `root ::= "a" [bc] "d"?`)
	for _, step := range []struct {
		yes, no string
		end     bool
	}{{"a", "bcd", false}, {"bc", "ad", false}, {"d", "abc", true}, {"", "abcd", true}} {
		for _, c := range step.yes {
			if !allows(t, g, c) {
				t.Errorf("%c may not come before %q", c, step.yes)
			}
		}
		for _, c := range step.no {
			if allows(t, g, c) {
				t.Errorf("%c may come instead of %q", c, step.yes)
			}
			if err := g.Accept(c); !errors.Is(err, ErrNotAllowed) {
				t.Errorf("accepting %c: %v", c, err)
			}
		}
		if allows(t, g, eos) != step.end {
			t.Errorf("end before %q: %v", step.yes, !step.end)
		}
		if step.yes != "" {
			if err := g.Accept(Token(step.yes[0])); err != nil {
				t.Fatal(err)
			}
		} else if err := g.Accept(eos); err != nil {
			t.Fatal(err)
		}
	}
}

// What llama.cpp's decoder takes for characters is not enough: a token must leave the text UTF-8.
func TestGrammarKeepsUTF8(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	for _, c := range []struct{ text, yes, no string }{
		{`"`, "a\xc3\xe3\xf0\"", "\x80\xbf\xc0\xff\xf5\n"},
		{"\"\xc3", "\xa9", "\"a\xc3\x7f"},
		{"\"\xe0", "\xa0", "\x80\""},
		{"\"\xed", "\x9f", "\xa0\""},
		{"\"\xf4\x8f\xbf", "\xbf", "\"\xc3"},
		{"\"\xf0\x9f\x98\x80", "\"", "\x80"},
	} {
		g := newGrammar(t, m, `root ::= "\"" [^"\x00-\x1F]* "\""`)
		for _, b := range []byte(c.text) {
			if err := g.Accept(Token(b)); err != nil {
				t.Fatalf("%q: %v", c.text, err)
			}
		}
		for _, b := range []byte(c.yes) {
			if !allows(t, g, Token(b)) {
				t.Errorf("%q may not follow %q", b, c.text)
			}
		}
		for _, b := range []byte(c.no) {
			if allows(t, g, Token(b)) {
				t.Errorf("%q may follow %q", b, c.text)
			}
		}
		for id := range Token(m.Facts().Vocab) {
			if m.IsControl(id) && allows(t, g, id) {
				t.Errorf("control token %d may follow %q", id, c.text)
			}
		}
	}
}

func TestGrammarErrors(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	for _, bad := range []string{"", "root ::= \"a\x00\"", "root ::= (", `other ::= "a"`, `root ::= root "a"`, `root ::= missing`} {
		if g, err := NewGrammar(m, bad); !errors.Is(err, ErrGrammar) {
			t.Errorf("%q: %v, %v", bad, g, err)
		}
	}
	g := newGrammar(t, m, `root ::= "a"`)
	var ok [1]bool
	for _, token := range []Token{-1, Token(m.Facts().Vocab)} {
		if err := g.Allowed([]Token{token}, ok[:]); !errors.Is(err, ErrBadToken) {
			t.Errorf("token %d: %v", token, err)
		}
		if err := g.Accept(token); !errors.Is(err, ErrBadToken) {
			t.Errorf("token %d: %v", token, err)
		}
	}
	if err := m.Close(); !errors.Is(err, ErrInUse) {
		t.Errorf("closing the model of a grammar: %v", err)
	}
	g.Close()
	g.Close()
	if err := g.Accept('a'); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Whatever may come is chosen at random, in the vocabulary of a model: the text satisfies the schema, or begins JSON.
func TestGrammarWalks(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	rng := rand.New(rand.NewPCG(1, 2))
	vocab := m.Facts().Vocab
	ids, ok := make([]Token, vocab), make([]bool, vocab)
	for i := range ids {
		ids[i] = Token(i)
	}
	whole := 0
	for _, schema := range []string{
		grammar.Any,
		`{"type":"object","properties":{"name":{"type":"string","maxLength":8},"tags":{"type":"array","items":{"enum":["x","yy"]},"maxItems":3},"n":{"type":"integer","minimum":-5,"maximum":12}},"required":["name","n"]}`,
		`{"type":"array","items":{"type":"number","minimum":0,"maximum":1},"minItems":1,"maxItems":3}`,
		`{"type":"string","format":"date-time"}`,
		`{"$defs":{"n":{"type":"object","properties":{"v":{"type":"boolean"},"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"}`,
	} {
		gbnf, err := grammar.Compile([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			g := newGrammar(t, m, gbnf)
			var text []byte
			ended := false
			for n := 0; n < 150 && !ended; n++ {
				if err := g.Allowed(ids, ok); err != nil {
					t.Fatal(err)
				}
				var may []Token
				for i := range ids {
					if ok[i] {
						may = append(may, ids[i])
					}
				}
				if len(may) == 0 {
					t.Fatalf("nothing may follow %q", text)
				}
				next := may[rng.IntN(len(may))]
				for _, end := range []Token{m.Facts().EOS, '"', '}', ']'} { // to come to an end
					if ok[end] && rng.IntN(3) == 0 {
						next = end
					}
				}
				if err := g.Accept(next); err != nil {
					t.Fatal(err)
				}
				if ended = m.IsEOG(next); !ended {
					if text, err = m.AppendPiece(text, next, false); err != nil {
						t.Fatal(err)
					}
				}
			}
			if ended {
				whole++
				if err := grammartest.Valid(schema, string(text)); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			} else if !grammartest.Prefix(strings.ToValidUTF8(string(text), "")) {
				t.Errorf("%q does not begin JSON", text)
			}
		}
	}
	if whole < 15 {
		t.Errorf("only %d of 30 came to an end", whole)
	}
}

// The widest grammars that package grammar makes are no danger to an engine.
func TestGrammarBounds(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	vocab := m.Facts().Vocab
	ids, ok := make([]Token, vocab), make([]bool, vocab)
	for i := range ids {
		ids[i] = Token(i)
	}
	var properties, values, objects, defs []string
	for i := range grammar.MaxAlternatives {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string","maxLength":30}`, i))
		values = append(values, fmt.Sprintf(`"same beginning %d"`, i))
	}
	for i := range grammar.MaxStates {
		objects = append(objects, fmt.Sprintf(`{"type":"object","properties":{"a":{"type":"string","maxLength":%d}},"required":["a"]}`, i+1))
	}
	for i := range grammar.MaxReferences - 1 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1))
	}
	for name, c := range map[string]struct{ schema, text string }{
		"properties": {`{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`, `{"p0":"","p1`},
		"enum":       {`{"enum":[` + strings.Join(values, ",") + `]}`, `"same beginn`},
		"objects":    {`{"anyOf":[` + strings.Join(objects, ",") + `]}`, `{"a":"x`},
		"references": {`{"$defs":{` + strings.Join(defs, ",") + `,"d255":{"type":"boolean"}},"type":"array","items":{"$ref":"#/$defs/d0"}}`, `[true,`},
		"string":     {`{"type":"string","maxLength":1000}`, `"` + strings.Repeat("x", 500)},
	} {
		gbnf, err := grammar.Compile([]byte(c.schema))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		begin := time.Now()
		g := newGrammar(t, m, gbnf)
		made := time.Since(begin)
		for _, b := range []byte(c.text) {
			if err := g.Accept(Token(b)); err != nil {
				t.Fatalf("%s: %q: %v", name, b, err)
			}
		}
		fed := time.Since(begin)
		if err := g.Allowed(ids, ok); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, made in %v, %d tokens accepted in %v, %d asked about in %v", name, len(gbnf), made, len(c.text), fed-made, vocab, time.Since(begin)-fed)
	}
}

// What a grammar costs: for a candidate, and for a whole vocabulary.
//
//	go test -tags llama -run xxx -bench Grammar ./worker/llama
func BenchmarkGrammarAllowed(b *testing.B) {
	m := loadTest(b, "tiny", DefaultModelOptions())
	gbnf, err := grammar.Compile([]byte(grammar.Any))
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 32, 1024, m.Facts().Vocab} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := newGrammar(b, m, gbnf)
			if err := g.Accept('{'); err != nil {
				b.Fatal(err)
			}
			if err := g.Accept('"'); err != nil {
				b.Fatal(err)
			}
			ids, ok := make([]Token, n), make([]bool, n)
			for i := range ids {
				ids[i] = Token(i)
			}
			for b.Loop() {
				if err := g.Allowed(ids, ok); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
