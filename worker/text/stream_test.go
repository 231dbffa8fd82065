package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cadence-slo/cadence/worker/text"
)

// feed returns the deltas of each piece and of the flush.
func feed(stops []string, pieces ...string) (deltas []string, stopped bool) {
	var s text.Stream
	s.Reset(stops)
	for _, p := range pieces {
		out, end := s.Append(nil, []byte(p))
		deltas = append(deltas, string(out))
		stopped = stopped || end
	}
	return append(deltas, string(s.Flush(nil))), stopped
}

func TestDeltas(t *testing.T) {
	for _, c := range []struct {
		name    string
		stops   []string
		pieces  []string
		want    []string // the last is the flush
		stopped bool
	}{
		{"plain", nil, []string{"ab", "", "c"}, []string{"ab", "", "c", ""}, false},
		{"emoji over three tokens", nil, []string{"x\xf0\x9f", "\x98", "\x80y"}, []string{"x", "", "😀y", ""}, false},
		{"character cut by a stop's hold", []string{"😀!"}, []string{"\xf0\x9f", "\x98\x80", "?"}, []string{"", "", "😀?", ""}, false},
		{"incomplete at the end", nil, []string{"a\xe4\xb8"}, []string{"a", "\uFFFD"}, false},
		{"invalid in the middle", nil, []string{"a\xff", "b\xc0\x80c"}, []string{"a\uFFFD", "b\uFFFD\uFFFDc", ""}, false},
		{"a tail that cannot go on", nil, []string{"\xf0\x9f", "a"}, []string{"", "\uFFFDa", ""}, false},
		{"a tail that another character follows", nil, []string{"\xe4\xb8", "\xe4\xb8\xad"}, []string{"", "\uFFFD中", ""}, false},
		{"surrogate", nil, []string{"\xed\xa0\x80"}, []string{"\uFFFD\uFFFD\uFFFD", ""}, false},
		{"stop over tokens", []string{"DEFGHIJ"}, []string{"ABC", "DE", "FGH", "IJK", "L"}, []string{"ABC", "", "", "", "", ""}, true},
		{"stop begins inside a token", []string{"DEFGHIJ"}, []string{"ABCD", "EFGH", "IJK"}, []string{"ABC", "", "", ""}, true},
		{"prefix released", []string{"DEFGHIJ"}, []string{"DE", "FG", "X", "DE"}, []string{"", "", "DEFGX", "", "DE"}, false},
		{"prefix inside a prefix", []string{"aab"}, []string{"a", "a", "a", "b"}, []string{"", "", "a", "", ""}, true},
		{"first complete wins", []string{"abcd", "bc"}, []string{"xab", "c", "d"}, []string{"x", "a", "", ""}, true},
		{"of two complete at once the longer", []string{"c", "abc"}, []string{"xab", "c"}, []string{"x", "", ""}, true},
		{"newline stop, text after it in the same token", []string{"\n\n"}, []string{"a\n", "\nb"}, []string{"a", "", ""}, true},
		{"stop of a multi-byte character", []string{"é"}, []string{"a\xc3", "\xa8", "\xc3", "\xa9z"}, []string{"a", "è", "", "", ""}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, stopped := feed(c.stops, c.pieces...)
			if strings.Join(got, "|") != strings.Join(c.want, "|") || stopped != c.stopped {
				t.Errorf("got %q, stopped %v; want %q, %v", got, stopped, c.want, c.stopped)
			}
		})
	}
}

func TestResetForgets(t *testing.T) {
	var s text.Stream
	s.Reset([]string{"stop"})
	s.Append(nil, []byte("a sto\xe4"))
	s.Reset([]string{"x"})
	if out, _ := s.Append(nil, []byte("p\xb8")); string(out) != "p\uFFFD" {
		t.Fatalf("got %q", out)
	}
	out, end := s.Append(nil, []byte("abxcd"))
	if string(out) != "ab" || !end {
		t.Fatalf("got %q, %v", out, end)
	}
	if out, end = s.Append(nil, []byte("x")); len(out) != 0 || !end {
		t.Fatalf("after the end: %q, %v", out, end)
	}
}

// naive decodes the whole text and then cuts it: at the first position where a stop string ends, before the longest
// that ends there.
func naive(raw []byte, stops []string) string {
	var b strings.Builder
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		if r != utf8.RuneError || n > 1 {
			b.Write(raw[:n])
			raw = raw[n:]
			continue
		}
		// The longest beginning of a character that raw starts with: some bytes after it make it a whole one.
		n = 1
		for k := 2; k <= 3 && k <= len(raw); k++ {
			for _, rest := range []string{"\x80", "\x80\x80", "\x90", "\xa0", "\xbf", "\xbf\xbf"} {
				if utf8.RuneCount([]byte(string(raw[:k])+rest)) == 1 && utf8.Valid([]byte(string(raw[:k])+rest)) {
					n = k
				}
			}
		}
		b.WriteString("\uFFFD")
		raw = raw[n:]
	}
	whole := b.String()
	for end := 1; end <= len(whole); end++ {
		cut := -1
		for _, s := range stops {
			if strings.HasSuffix(whole[:end], s) && (cut < 0 || end-len(s) < cut) {
				cut = end - len(s)
			}
		}
		if cut >= 0 {
			return whole[:cut]
		}
	}
	return whole
}

// However the bytes are cut into pieces, the deltas are valid UTF-8, are never taken back, and add up to what decoding
// and cutting the whole gives.
func FuzzStreamAgainstWhole(f *testing.F) {
	f.Add([]byte("hello wor\nld"), []byte{3, 1, 2}, "wor", "or\n")
	f.Add([]byte("\xf0\x9f\x98\x80\xf0\x9f\xff\xe4\xb8"), []byte{1}, "", "\uFFFD")
	f.Add([]byte("aaaaaab"), []byte{2}, "aab", "ab")
	f.Add([]byte("abcabcabd"), []byte{1, 2, 3}, "abcabd", "")
	f.Add([]byte("中文字\xed\xa0\x80中文"), []byte{2, 1}, "字中", "文字文")
	f.Fuzz(func(t *testing.T, raw, cuts []byte, a, b string) {
		var stops []string
		for _, s := range []string{a, b} {
			if s = strings.ToValidUTF8(s, "\uFFFD"); s != "" {
				stops = append(stops, s)
			}
		}
		want := naive(raw, stops)
		var s text.Stream
		s.Reset(stops)
		var got []byte
		rest := raw
		for i := 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, int(cuts[i%len(cuts)]%8)+1)
			}
			out, _ := s.Append(nil, rest[:n])
			if !utf8.Valid(out) {
				t.Fatalf("delta %q is not UTF-8", out)
			}
			got = append(got, out...)
			if !strings.HasPrefix(want, string(got)) {
				t.Fatalf("%q after %d bytes of %q, whole is %q, stops %q", got, len(raw)-len(rest)+n, raw, want, stops)
			}
			rest = rest[n:]
		}
		out := s.Flush(nil)
		if got = append(got, out...); string(got) != want || !utf8.Valid(out) {
			t.Fatalf("got %q, want %q, stops %q", got, want, stops)
		}
	})
}

// Pieces of five bytes with four stop strings.
//
//	go test -bench Append -benchmem ./worker/text
func BenchmarkAppend(b *testing.B) {
	var s text.Stream
	s.Reset([]string{"\n\nUser:", "<|im_end|>", "END", "é"})
	dst := make([]byte, 0, 256)
	piece := []byte(" abcd")
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = s.Append(dst[:0], piece)
	}
}
