package load

import (
	"slices"
	"strings"
	"testing"
)

func parse(pieces ...string) (out []string) {
	var p sseParser
	for _, s := range pieces {
		p.feed([]byte(s), func(e event) bool {
			out = append(out, string(e.id)+"|"+string(e.name)+"|"+string(e.data))
			return true
		})
	}
	return out
}

func TestSSE(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"plain":                    {"data: a\n\ndata: b\n\n", []string{"||a", "||b"}},
		"carriage returns":         {"data: a\r\rdata: b\r\r", []string{"||a", "||b"}},
		"both":                     {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"||a", "||b"}},
		"lines are joined, CRLF":   {"data: a\r\ndata: b\r\n\r\n", []string{"||a\nb"}},
		"lines are joined":         {"data: a\ndata:b\ndata\n\n", []string{"||a\nb\n"}},
		"only one space goes":      {"data:  a \n\n", []string{"|| a "}},
		"comment":                  {": ping\n\ndata: a\n\n", []string{"||a"}},
		"comment inside":           {"data: a\n: ping\ndata: b\n\n", []string{"||a\nb"}},
		"id stays, name does not":  {"id: 1\nevent: x\ndata: a\n\ndata: b\n\n", []string{"1|x|a", "1||b"}},
		"id without data":          {"id: 7\n\ndata: a\n\n", []string{"7||a"}},
		"id with NUL is ignored":   {"id: 1\ndata: a\n\nid: \x00\ndata: b\n\n", []string{"1||a", "1||b"}},
		"empty data is an event":   {"data\n\n", []string{"||"}},
		"unknown field":            {"retry: 10\nfoo: bar\ndata: a\n\n", []string{"||a"}},
		"byte order mark":          {"\xef\xbb\xbfdata: a\n\n", []string{"||a"}},
		"not closed at the end":    {"data: a\n\ndata: b\n", []string{"||a"}},
		"colon in the value":       {"data: {\"a\":1}\n\n", []string{"||{\"a\":1}"}},
		"blank lines between":      {"\n\n\ndata: a\n\n\n\ndata: b\n\n", []string{"||a", "||b"}},
		"name is gone if no data":  {"event: x\n\ndata: a\n\n", []string{"||a"}},
		"half a field name at end": {"dat", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parse(c.in); !slices.Equal(got, c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for cut := range len(c.in) {
				if got := parse(c.in[:cut], c.in[cut:]); !slices.Equal(got, c.want) {
					t.Fatalf("cut at %d: %q, want %q", cut, got, c.want)
				}
			}
			if got := parse(strings.Split(c.in, "")...); !slices.Equal(got, c.want) {
				t.Fatalf("byte by byte: %q, want %q", got, c.want)
			}
		})
	}
}

// naiveSSE is the standard's algorithm on a whole text.
func naiveSSE(in string) (out []string) {
	in = strings.TrimPrefix(in, "\xef\xbb\xbf")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(in, "\n")
	var id, name string
	var data []string
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if data != nil {
				out = append(out, id+"|"+name+"|"+strings.Join(data, "\n"))
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "event":
			name = value
		}
	}
	return out
}

func FuzzSSE(f *testing.F) {
	f.Add("id: 1\r\ndata: a\r\n\r\n", 3)
	f.Add("\xef\xbb\xbfdata: a\rdata:b\r\r\n: c\n\n", 9)
	f.Fuzz(func(t *testing.T, in string, cut int) {
		want := naiveSSE(in)
		cut = min(max(cut, 0), len(in))
		if got := parse(in[:cut], in[cut:]); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
