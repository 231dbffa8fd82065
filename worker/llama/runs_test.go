package llama

import (
	"strings"
	"testing"
)

func TestCutRuns(t *testing.T) {
	long := strings.Repeat
	for name, c := range map[string]struct {
		text   string
		pieces int
	}{
		"empty":             {"", 1},
		"ordinary":          {"Please explain, in 1234 words, caching.\n\n" + long("word ", 5000), 1},
		"at the limit":      {long("a", maxRun), 1},
		"one over":          {long("a", maxRun+1), 2},
		"many letters":      {long("a", 10*maxRun), 10},
		"letters of others": {long("é", maxRun) + "x", 2},
		"marks":             {long("e\u0301", maxRun), 2},
		"spaces":            {"a" + long(" \n", maxRun) + "b", 2},
		"digits":            {long("7", 3*maxRun), 3},
		"punctuation":       {long("=", 2*maxRun+1), 3},
		"classes alternate": {long("ab12", 10*maxRun), 1},
		"invalid UTF-8":     {long("\xff", 2*maxRun), 2},
	} {
		pieces := cutRuns(c.text)
		if len(pieces) != c.pieces {
			t.Errorf("%s: %d pieces, want %d", name, len(pieces), c.pieces)
		}
		if strings.Join(pieces, "") != c.text {
			t.Errorf("%s: pieces are not the text", name)
		}
	}
}

func FuzzCutRuns(f *testing.F) {
	f.Add("abc", uint16(700))
	f.Add("\xff1 é", uint16(3))
	f.Fuzz(func(t *testing.T, s string, n uint16) {
		text := strings.Repeat(s, int(n%2000))
		pieces := cutRuns(text)
		if strings.Join(pieces, "") != text {
			t.Fatal("pieces are not the text")
		}
		for _, piece := range pieces {
			run, last := 0, classOther
			for _, r := range piece {
				if c := classOf(r); c != last {
					last, run = c, 0
				}
				if run++; run > maxRun {
					t.Fatalf("run of %d left", run)
				}
			}
		}
	})
}

// go test -bench CutRuns ./worker/llama
func BenchmarkCutRuns(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog. ", 50)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		cutRuns(text)
	}
}
