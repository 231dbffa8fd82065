//go:build llama && cgo

package llama

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The benchmarks run on one thread and the tiny model unless BENCH_PRESET names another; build flags matter, so go through
// `make bench` or set the same CGO variables:
//
//	BENCH_PRESET=120m go test -tags llama -run - -bench . ./worker/llama
func benchContext(b *testing.B) (*Model, *Context) {
	m := loadTest(b, cmp.Or(os.Getenv("BENCH_PRESET"), "tiny"), DefaultModelOptions())
	return m, newTestContext(b, m, DefaultContextOptions())
}

// BenchmarkDecode is one step of n sequences, each with 128 tokens in the cache, arg-max not included.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			_, c := benchContext(b)
			prompt := make([]Token, 128)
			for i := range prompt {
				prompt[i] = Token(300 + i)
			}
			for s := range n {
				feed(b, c, SeqID(s), 0, prompt, len(prompt))
			}
			batch := NewBatch(n)
			pos := Pos(len(prompt))
			for b.Loop() {
				if pos == 256 {
					for s := range n {
						if err := c.SeqRemove(SeqID(s), 128, -1); err != nil {
							b.Fatal(err)
						}
					}
					pos = 128
				}
				batch.Reset()
				for s := range n {
					if _, err := batch.Add(Token(300+s), pos, true, SeqID(s)); err != nil {
						b.Fatal(err)
					}
				}
				if err := c.Decode(batch); err != nil {
					b.Fatal(err)
				}
				pos++
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkPrefill is a prompt of 512 tokens into an empty cache.
func BenchmarkPrefill(b *testing.B) {
	_, c := benchContext(b)
	prompt := make([]Token, 512)
	for i := range prompt {
		prompt[i] = Token(300 + i)
	}
	for b.Loop() {
		c.Clear()
		feed(b, c, 0, 0, prompt, len(prompt))
	}
	b.ReportMetric(float64(b.N*len(prompt))/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkTokenize is a chat of two turns and, apart, 2 KB of prose.
func BenchmarkTokenize(b *testing.B) {
	for name, text := range map[string]string{"chat": chat, "prose": strings.Repeat("the quick brown fox jumps over the lazy dog. ", 45)} {
		b.Run(name, func(b *testing.B) {
			m := loadTest(b, cmp.Or(os.Getenv("BENCH_PRESET"), "tiny"), ModelOptions{VocabOnly: true})
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tokenize(b, m, text)
			}
		})
	}
}

// BenchmarkSeqCopy shares a prefix of 512 tokens and drops it again.
func BenchmarkSeqCopy(b *testing.B) {
	_, c := benchContext(b)
	prompt := make([]Token, 512)
	for i := range prompt {
		prompt[i] = Token(300 + i)
	}
	feed(b, c, 0, 0, prompt, len(prompt))
	for b.Loop() {
		if err := c.SeqCopy(0, 1, 0, -1); err != nil {
			b.Fatal(err)
		}
		if err := c.SeqRemove(1, 0, -1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendPiece(b *testing.B) {
	m := loadTest(b, "tiny", ModelOptions{VocabOnly: true})
	buffer := make([]byte, 0, 64)
	for b.Loop() {
		if _, err := m.AppendPiece(buffer, 300, false); err != nil {
			b.Fatal(err)
		}
	}
}
