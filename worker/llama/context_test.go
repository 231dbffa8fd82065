//go:build llama && cgo

package llama

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

func TestContextOptionsAreRounded(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	o := smallContext()
	o.Cells, o.BatchTokens, o.MicroBatchTokens = 1000, 100, 50
	got := newTestContext(t, m, o).Options()
	if o.Cells = 1024; got != o {
		t.Errorf("options %+v, want %+v", got, o)
	}
	o.Sequences = MaxSequences + 1
	if _, err := NewContext(m, o); !errors.Is(err, ErrOptions) {
		t.Errorf("257 sequences: %v", err)
	}
}

// Cutting a prompt into chunks must not change what comes out, beyond rounding.
func TestChunkedPrefillAgreesWithWhole(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	prompt := tokenize(t, m, chat)
	whole := feed(t, c, 0, 0, prompt, len(prompt))
	for i, chunk := range []int{1, 7, 16} {
		s := SeqID(i + 1)
		logits := feed(t, c, s, 0, prompt, chunk)
		var worst float64
		for i := range logits {
			worst = max(worst, math.Abs(float64(logits[i]-whole[i])))
		}
		if worst > 0.05 || best(logits) != best(whole) { // logits have a deviation of 3
			t.Errorf("chunks of %d: logits differ by up to %g, best %d and %d", chunk, worst, best(logits), best(whole))
		}
	}
}

// A sequence that shares a copied prefix says what it says alone, and so does the one it was copied from.
func TestSeqCopySharesPrefix(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	prefix := tokenize(t, m, "You are a helpful assistant. Answer the question about computer science.")
	n := Pos(len(prefix))
	ends := [][]Token{tokenize(t, m, " What is a cache?"), tokenize(t, m, " Tell me about water and music, please.")}
	var alone [2][]Token
	for i, end := range ends {
		c.Clear()
		alone[i] = greedy(t, c, 0, n+Pos(len(end)), feed(t, c, 0, 0, slices.Concat(prefix, end), 64), 24)
	}
	if slices.Equal(alone[0], alone[1]) {
		t.Fatal("the two prompts give the same text, which proves nothing")
	}
	c.Clear()
	feed(t, c, 0, 0, prefix, 64)
	for s := SeqID(1); s <= 2; s++ {
		if err := c.SeqCopy(0, s, 0, n); err != nil {
			t.Fatal(err)
		}
	}
	// The sequences go on in turns, in one batch each step.
	logits := [2][]float32{feed(t, c, 1, n, ends[0], 64), feed(t, c, 2, n, ends[1], 64)}
	pos := [2]Pos{n + Pos(len(ends[0])), n + Pos(len(ends[1]))}
	var got [2][]Token
	b := NewBatch(2)
	for range alone[0] {
		b.Reset()
		for i := range got {
			token := best(logits[i])
			got[i] = append(got[i], token)
			if _, err := b.Add(token, pos[i], true, SeqID(i+1)); err != nil {
				t.Fatal(err)
			}
			pos[i]++
		}
		if err := c.Decode(b); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			var err error
			if logits[i], err = c.Logits(i); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range got {
		if !slices.Equal(got[i], alone[i]) {
			t.Errorf("sequence %d says %v, alone %v", i+1, got[i], alone[i])
		}
	}
	if p, err := c.SeqPosMax(0); err != nil || p != n-1 {
		t.Errorf("prefix sequence now ends at %d, %v, want %d", p, err, n-1)
	}
}

// One token can be put into several sequences at once.
func TestTokensOfSeveralSequences(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	prompt := tokenize(t, m, chat)
	n := Pos(len(prompt))
	want := greedy(t, c, 0, n, feed(t, c, 0, 0, prompt, 64), 12)
	b := NewBatch(len(prompt))
	var row int
	for i, token := range prompt {
		var err error
		if row, err = b.Add(token, Pos(i), i == len(prompt)-1, 1, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Decode(b); err != nil {
		t.Fatal(err)
	}
	logits, err := c.Logits(row)
	if err != nil {
		t.Fatal(err)
	}
	logits = slices.Clone(logits)
	for s := SeqID(1); s <= 2; s++ {
		if got := greedy(t, c, s, n, logits, len(want)); !slices.Equal(got, want) {
			t.Errorf("sequence %d says %v, want %v", s, got, want)
		}
	}
}

func TestPartialSeqRemove(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	head, wrong, right := tokenize(t, m, "The history of science"), tokenize(t, m, " is full of water and light"), tokenize(t, m, " begins with a question")
	n := Pos(len(head))
	want := greedy(t, c, 0, n+Pos(len(right)), feed(t, c, 0, 0, slices.Concat(head, right), 64), 16)
	feed(t, c, 1, 0, slices.Concat(head, wrong), 64)
	if err := c.SeqRemove(1, n, -1); err != nil {
		t.Fatal(err)
	}
	if p, err := c.SeqPosMax(1); err != nil || p != n-1 {
		t.Fatalf("sequence ends at %d, %v, want %d", p, err, n-1)
	}
	if got := greedy(t, c, 1, n+Pos(len(right)), feed(t, c, 1, n, right, 64), 16); !slices.Equal(got, want) {
		t.Errorf("after removal %v, want %v", got, want)
	}
}

func TestFullCacheRecovers(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	o := smallContext()
	o.Cells, o.BatchTokens, o.MicroBatchTokens = 256, 256, 64
	c := newTestContext(t, m, o)
	tokens := make([]Token, 120)
	for i := range tokens {
		tokens[i] = Token(300 + i)
	}
	alone := feed(t, c, 0, 0, tokens, 256)
	c.Clear()
	feed(t, c, 0, 0, tokens, 256)
	feed(t, c, 1, 0, tokens, 256)
	b := NewBatch(64)
	for i := range 40 { // 16 cells are left
		if _, err := b.Add(tokens[i], Pos(i), true, 2); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := c.Decode(b); !errors.Is(err, ErrNoSlot) {
			t.Fatalf("full cache: %v", err)
		}
		if _, err := c.Logits(39); !errors.Is(err, ErrNoLogits) {
			t.Errorf("logits after a failed Decode: %v", err)
		}
	}
	for s, want := range []Pos{119, 119, -1} {
		if p, err := c.SeqPosMax(SeqID(s)); err != nil || p != want {
			t.Errorf("sequence %d ends at %d, %v, want %d", s, p, err, want)
		}
	}
	if err := c.SeqRemove(1, 0, -1); err != nil {
		t.Fatal(err)
	}
	logits := feed(t, c, 2, 0, tokens, 256)
	if best(logits) != best(alone) {
		t.Errorf("after recovery best token %d, want %d", best(logits), best(alone))
	}
}

func TestBadBatchesAreErrors(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	o := smallContext()
	o.BatchTokens, o.MicroBatchTokens = 4, 4
	c := newTestContext(t, m, o)
	feed(t, c, 0, 0, []Token{1, 2, 3}, 3)
	type add struct {
		token Token
		pos   Pos
		s     SeqID
	}
	for name, adds := range map[string][]add{
		"empty":                {},
		"over the batch limit": {{1, 0, 1}, {1, 1, 1}, {1, 2, 1}, {1, 3, 1}, {1, 4, 1}},
		"bad token":            {{4096, 0, 1}},
		"bad sequence":         {{1, 0, 8}},
		"position gap":         {{1, 4, 0}},
		"position again":       {{1, 2, 0}},
		"positions descend":    {{1, 1, 1}, {1, 0, 1}},
	} {
		b := NewBatch(8)
		for _, a := range adds {
			if _, err := b.Add(a.token, a.pos, true, a.s); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Decode(b); !errors.Is(err, ErrBadBatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err := c.SeqPosMax(0); err != nil || p != 2 {
		t.Errorf("sequence 0 ends at %d, %v", p, err)
	}
	feed(t, c, 0, 3, []Token{4}, 1)
}

func TestLogitsOnlyWhereAsked(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	if _, err := c.Logits(0); !errors.Is(err, ErrNoLogits) {
		t.Errorf("before the first Decode: %v", err)
	}
	b := NewBatch(4)
	for i := range 4 {
		if _, err := b.Add(Token(300+i), Pos(i), i%2 == 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Decode(b); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	rows := map[int]bool{-1: false, 0: false, 1: true, 2: false, 3: true, 4: false}
	for row, want := range rows {
		logits, err := c.Logits(row)
		if want && (err != nil || len(logits) != m.Facts().Vocab) || !want && !errors.Is(err, ErrNoLogits) {
			t.Errorf("row %d: %d logits, error %v", row, len(logits), err)
		}
	}
	first, _ := c.Logits(1)
	third, _ := c.Logits(3)
	if slices.Equal(first, third) {
		t.Error("two rows have the same logits")
	}
	// Rows that the model must not choose have logits of exactly zero.
	if f := m.Facts(); first[f.EOS] != 0 || first[f.BOS] != 0 || first['\n'] != 0 || first[best(first)] < 3 {
		t.Errorf("logits of silent tokens are %g, %g, %g, the best %g", first[f.EOS], first[f.BOS], first['\n'], first[best(first)])
	}
}

func TestSequenceArguments(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	feed(t, c, 0, 0, []Token{1, 2, 3, 4}, 4)
	if err := c.SeqCopy(0, 1, 0, 2); err != nil {
		t.Fatal(err)
	}
	if err := c.SeqCopy(0, 1, 2, 3); err != nil { // right after what it holds
		t.Fatal(err)
	}
	_, position := c.SeqPosMax(8)
	for name, err := range map[string]error{
		"copy from nowhere":        c.SeqCopy(8, 1, 0, -1),
		"copy to nowhere":          c.SeqCopy(0, -1, 0, -1),
		"copy onto itself":         c.SeqCopy(0, 0, 0, -1),
		"copy backwards":           c.SeqCopy(0, 2, 3, 1),
		"copy from below zero":     c.SeqCopy(0, 2, -1, 1),
		"copy what is there":       c.SeqCopy(0, 1, 0, -1),
		"copy over a part":         c.SeqCopy(0, 1, 2, -1),
		"copy with a gap":          c.SeqCopy(0, 1, 4, -1),
		"remove from nowhere":      c.SeqRemove(-1, 0, -1),
		"remove backwards":         c.SeqRemove(0, 2, 1),
		"remove from below zero":   c.SeqRemove(0, -5, 1),
		"position of no sequence":  position,
		"remove of a huge id":      c.SeqRemove(1<<30, 0, -1),
		"copy from a negative id":  c.SeqCopy(-1<<31, 0, 0, -1),
		"copy to the last id plus": c.SeqCopy(0, MaxSequences, 0, -1),
	} {
		if !errors.Is(err, ErrBadSequence) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for s, want := range []Pos{3, 2, -1} {
		if p, err := c.SeqPosMax(SeqID(s)); err != nil || p != want {
			t.Errorf("sequence %d ends at %d, %v, want %d", s, p, err, want)
		}
	}
	c.Clear()
	if p, err := c.SeqPosMax(0); err != nil || p != -1 {
		t.Errorf("after Clear sequence 0 ends at %d, %v", p, err)
	}
}

func TestInterruptRollsBack(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	o := DefaultContextOptions()
	o.BatchTokens, o.MicroBatchTokens = 8192, 32
	c := newTestContext(t, m, o)
	feed(t, c, 0, 0, []Token{1, 2, 3}, 3)
	b := NewBatch(8000)
	for i := range 8000 {
		if _, err := b.Add(Token(300+i%3000), Pos(i+3), i == 7999, 0); err != nil {
			t.Fatal(err)
		}
	}
	aborts := func(when string) {
		if err := c.Decode(b); !errors.Is(err, ErrAborted) {
			t.Fatalf("interrupted %s: %v", when, err)
		}
		if p, err := c.SeqPosMax(0); err != nil || p != 2 {
			t.Fatalf("interrupted %s: sequence ends at %d, %v, want 2", when, p, err)
		}
	}
	c.Interrupt()
	aborts("before the call")
	time.AfterFunc(50*time.Millisecond, c.Interrupt)
	aborts("after some micro-batches") // all of them take seconds
	fresh := newTestContext(t, m, o)
	feed(t, fresh, 0, 0, []Token{1, 2, 3}, 3)
	want := feed(t, fresh, 0, 3, []Token{500, 501}, 2)
	if got := feed(t, c, 0, 3, []Token{500, 501}, 2); best(got) != best(want) {
		t.Errorf("after interruptions best token %d, want %d", best(got), best(want))
	}
}

func TestSetThreads(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	want := best(feed(t, c, 0, 0, []Token{300, 301, 302}, 3))
	if err := c.SetThreads(2, 2); err != nil {
		t.Fatal(err)
	}
	if got := best(feed(t, c, 1, 0, []Token{300, 301, 302}, 3)); got != want || c.Options().Threads != 2 {
		t.Errorf("best token %d with two threads, %d with one", got, want)
	}
	if err := c.SetThreads(0, 1); !errors.Is(err, ErrOptions) {
		t.Errorf("no threads: %v", err)
	}
}

func TestStepsDoNotAllocate(t *testing.T) {
	m := loadTest(t, "tiny", DefaultModelOptions())
	c := newTestContext(t, m, smallContext())
	b := NewBatch(4)
	pos := Pos(0)
	if n := testing.AllocsPerRun(20, func() {
		b.Reset()
		for s := range SeqID(4) {
			if _, err := b.Add(300, pos, true, s); err != nil {
				t.Error(err)
			}
		}
		if err := c.Decode(b); err != nil {
			t.Error(err)
		}
		for row := range 4 {
			if _, err := c.Logits(row); err != nil {
				t.Error(err)
			}
		}
		pos++
	}); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}
