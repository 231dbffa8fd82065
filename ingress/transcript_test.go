package ingress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/schema"
)

// piece makes a chunk of n tokens from index on; its text tells attempt and index of each token.
func piece(attempt uint32, index int32, n int) *schema.Chunk {
	c := &schema.Chunk{Attempt: attempt, Index: index}
	var text strings.Builder
	for i := range int32(n) {
		c.IDs = append(c.IDs, index+i)
		fmt.Fprintf(&text, "%d.%d ", attempt, index+i)
	}
	c.Text = text.String()
	return c
}

func last(attempt uint32, index int32) *schema.Chunk {
	return &schema.Chunk{Attempt: attempt, Index: index, Finish: &schema.Finish{Reason: schema.FinishStop, OutputTokens: index}}
}

func TestTranscriptTakesEachTokenOnceInOrder(t *testing.T) {
	var tr transcript
	for _, step := range []struct {
		c    *schema.Chunk
		want fate
	}{
		{piece(1, 0, 2), taken},
		{piece(1, 0, 2), late},
		{piece(1, 3, 1), ahead},
		{piece(1, 4, 2), ahead},
		{piece(1, 4, 2), ahead}, // again
		{piece(1, 2, 1), taken},
		{piece(1, 5, 3), torn},
		{piece(2, 4, 1), late}, // a later attempt that starts inside what is there
		{last(1, 7), ahead},
		{piece(1, 6, 1), taken},
		{piece(1, 7, 1), late}, // after the end
	} {
		if got := tr.add(step.c); got != step.want {
			t.Fatalf("chunk %d+%d of attempt %d: %v, want %v", step.c.Index, len(step.c.IDs), step.c.Attempt, got, step.want)
		}
	}
	if !slices.Equal(tr.ids, schema.Tokens{0, 1, 2, 3, 4, 5, 6}) || tr.finish == nil || tr.gap() {
		t.Fatalf("%+v", tr)
	}
	if got, want := joined(tr.texts), "1.0 1.1 1.2 1.3 1.4 1.5 1.6 "; got != want {
		t.Fatalf("text %q, want %q", got, want)
	}
}

func joined(texts []said) string {
	var b strings.Builder
	for _, t := range texts {
		b.WriteString(t.text)
	}
	return b.String()
}

func TestSealedAttemptIsDropped(t *testing.T) {
	var tr transcript
	tr.add(piece(1, 0, 2))
	tr.add(piece(1, 3, 1)) // held
	tr.seal(1)
	tr.seal(1)
	if tr.gap() {
		t.Fatal("a chunk of the sealed attempt is still held")
	}
	if got := tr.add(piece(1, 2, 1)); got != late {
		t.Fatalf("sealed attempt: %v", got)
	}
	if got := tr.add(&schema.Chunk{Attempt: 1, Index: 2, Error: &schema.Error{Code: schema.FailedEngine}}); got != late {
		t.Fatalf("error of the sealed attempt: %v", got)
	}
	tr.add(piece(2, 2, 2))
	tr.add(last(2, 4))
	if got, want := joined(tr.texts), "1.0 1.1 2.2 2.3 "; got != want || tr.finish == nil {
		t.Fatalf("text %q, want %q", got, want)
	}
}

func TestErrorEndsTheTranscript(t *testing.T) {
	fail := &schema.Error{Code: schema.FailedWorkerLost}
	for name, c := range map[string]*schema.Chunk{
		"of a scheduler that does not know how far it came": {Index: 0, Error: fail},
		"of the attempt":                      {Attempt: 1, Index: 2, Error: fail},
		"of the attempt, counting fewer":      {Attempt: 1, Index: 1, Error: fail},
		"with the last tokens":                {Attempt: 1, Index: 2, IDs: schema.Tokens{2}, Text: "x", Error: fail},
		"of a later attempt that never began": {Attempt: 3, Index: 2, Error: fail},
	} {
		var tr transcript
		tr.add(piece(1, 0, 2))
		if got := tr.add(c); got != taken || tr.failed != fail || len(tr.ids) != 2+len(c.IDs) {
			t.Errorf("%s: %v, %+v", name, got, tr)
		}
	}
	var tr transcript
	tr.add(piece(1, 0, 1))
	if got := tr.add(&schema.Chunk{Attempt: 1, Index: 2, Error: fail}); got != ahead || tr.ended() {
		t.Errorf("error behind a gap: %v", got)
	}
	if tr.add(piece(1, 1, 1)); tr.failed != fail {
		t.Error("the error behind the gap is lost")
	}
}

// TestAnyOrderGivesTheSameAnswer delivers the chunks of two attempts, cut at a seal, shuffled and repeated.
func TestAnyOrderGivesTheSameAnswer(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var tr transcript
		var want strings.Builder
		total := int32(0)
		deliver := func(attempt uint32, upto int32, end bool) {
			var chunks []*schema.Chunk
			for i := total; i < upto; {
				n := min(1+r.Int32N(3), upto-i)
				c := piece(attempt, i, int(n))
				chunks = append(chunks, c)
				want.WriteString(c.Text)
				i += n
			}
			if end {
				chunks = append(chunks, last(attempt, upto))
			}
			chunks = append(chunks, chunks...)
			r.Shuffle(len(chunks), func(i, j int) { chunks[i], chunks[j] = chunks[j], chunks[i] })
			for _, c := range chunks {
				if tr.add(c) == torn {
					t.Fatalf("seed %d: torn", seed)
				}
			}
			total = upto
		}
		cut := r.Int32N(20)
		deliver(1, cut, false)
		// What attempt 1 did after the seal must not count.
		tr.seal(1)
		for i := range 5 {
			tr.add(piece(1, cut+int32(i), 1))
		}
		deliver(2, cut+r.Int32N(20), true)
		if got := joined(tr.texts); got != want.String() || tr.finish == nil || tr.gap() || int32(len(tr.ids)) != total {
			t.Fatalf("seed %d: %q, want %q, %d tokens of %d", seed, got, want.String(), len(tr.ids), total)
		}
	}
}

func BenchmarkTranscript(b *testing.B) {
	chunks := make([]*schema.Chunk, 64)
	for i := range chunks {
		chunks[i] = piece(1, int32(i), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		tr := transcript{ids: make(schema.Tokens, 0, 64), texts: make([]said, 0, 64)}
		for _, c := range chunks {
			tr.add(c)
		}
	}
}
