package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

var vocabulary = func() Vocabulary {
	v, err := NewVocabulary(32000, nil)
	if err != nil {
		panic(err)
	}
	return v
}()

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, name string) Timed {
	t.Helper()
	s, err := OpenSource(name, vocabulary, 1)
	if err != nil {
		t.Fatal(err)
	}
	timed, ok := s.(Timed)
	if !ok {
		t.Fatalf("%s is %T, without times", name, s)
	}
	return timed
}

// lengths are prompt, cap and output of the first n requests.
func lengths(s Source, n int) (out [][3]int) {
	for i := range n {
		r := s.Request(i)
		out = append(out, [3]int{len(r.Prompt), r.Cap, r.Output})
	}
	return out
}

func times(s Timed) []time.Duration { return slices.Collect(s.Arrivals()) }

func described(t *testing.T, s Source) (a about) {
	t.Helper()
	if err := json.Unmarshal(s.Describe(), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

const azureRows = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" +
	"2023-11-16 18:15:46.6805900,374,44\r\n" +
	"2023-11-16 18:15:50.6805900,396,109\r\n" +
	"2023-11-16 18:15:50.6805901,1025,1\r\n" +
	"2023-11-16 18:15:56.6805900,2,16\r\n"

func TestAzure(t *testing.T) {
	path := file(t, "conv.csv", azureRows)
	s := open(t, "azure:"+path)
	equal(t, "lengths", lengths(s, 5), [][3]int{{374, 44, 44}, {396, 109, 109}, {1025, 1, 1}, {2, 16, 16}, {374, 44, 44}}) // and again
	equal(t, "times", times(s), []time.Duration{0, 4e9, 4e9 + 100, 10e9})
	equal(t, "name", s.Name(), "azure:conv.csv")
	for _, options := range []string{"?rate=2", "?tokens=0.25", "?from=1s&length=8s&rate=0.5&tokens=2"} { // other offers than the file's own
		equal(t, "name", open(t, "azure:"+path+options).Name(), "azure:conv.csv"+options)
	}
	if s.SLOs() != nil {
		t.Errorf("objectives %v", s.SLOs())
	}
	a := described(t, s)
	if a.Rows != 4 || a.Tokens != 1 || a.TimeStretch != 1 || a.Rate != 0.3 || a.NativeRate != 0.3 || len(a.SHA256) != 64 || a.File != path {
		t.Errorf("%+v", a)
	}
	if slices.Equal(s.Request(0).Prompt, s.Request(4).Prompt) {
		t.Error("the second time round has the first's prompts")
	}

	quarter := open(t, "azure:"+path+"?tokens=0.25")
	equal(t, "a quarter", lengths(quarter, 4), [][3]int{{94, 11, 11}, {99, 27, 27}, {257, 1, 1}, {1, 4, 4}})
	equal(t, "its times", times(quarter), times(s))

	window := open(t, "azure:"+path+"?from=4s&length=6s") // half-open
	equal(t, "window", lengths(window, 2), [][3]int{{396, 109, 109}, {1025, 1, 1}})
	equal(t, "its times", times(window), []time.Duration{0, 100})
	if a := described(t, window); a.From != 4*time.Second || a.Length != 6*time.Second || a.Rows != 2 || a.Of != 4 {
		t.Errorf("%+v", a)
	}

	faster := open(t, "azure:"+path+"?rate=0.6")
	equal(t, "twice as fast", times(faster), []time.Duration{0, 2e9, 2e9 + 50, 5e9})
	if a := described(t, faster); a.Rate != 0.6 || a.NativeRate != 0.3 || a.TimeStretch != 0.5 {
		t.Errorf("%+v", a)
	}
	for i := range times(s) { // ends when it is told
		n := 0
		for range s.Arrivals() {
			if n++; n > i {
				break
			}
		}
		equal(t, "taken", n, i+1)
	}
}

// The trace of 2024 has other columns, an offset and a shorter fraction.
func TestAzureForms(t *testing.T) {
	s := open(t, "azure:"+file(t, "a.csv", "ContextTokens,x,TIMESTAMP,GeneratedTokens\n5,,2024-05-10 00:00:00+00:00,6\n7,,2024-05-10 00:00:00.25+00:00,8\n"))
	equal(t, "lengths", lengths(s, 2), [][3]int{{5, 6, 6}, {7, 8, 8}})
	equal(t, "times", times(s), []time.Duration{0, 250e6})
}

func TestAzureExcerpt(t *testing.T) {
	s := open(t, "azure:testdata/azure-conv-2023.csv")
	at := times(s)
	if len(at) != 120 || at[0] != 0 || !slices.IsSorted(at) || at[119] != 45502752*time.Microsecond {
		t.Errorf("%d arrivals from %v to %v", len(at), at[0], at[len(at)-1])
	}
	equal(t, "last", lengths(s, 120)[119], [3]int{1157, 426, 426})
}

func TestMooncake(t *testing.T) {
	path := file(t, "m.jsonl", `{"timestamp": 0, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 2353]}
{"timestamp": 27.5, "input_length": 1200, "output_length": 3, "hash_ids": [46, 47, 9], "type": "text"}

{"timestamp": 3000, "input_length": 600, "output_length": 1, "hash_ids": [46]}
{"timestamp": 3000, "input_length": 512, "output_length": 1, "hash_ids": [5]}
`)
	for _, c := range []struct {
		options string
		block   int
		lengths [][3]int
	}{
		{"", 512, [][3]int{{1030, 52, 52}, {1200, 3, 3}, {600, 1, 1}, {512, 1, 1}}},
		{"?tokens=0.25", 128, [][3]int{{258, 13, 13}, {300, 1, 1}, {150, 1, 1}, {128, 1, 1}}},
	} {
		s := open(t, "mooncake:"+path+c.options)
		equal(t, "lengths", lengths(s, 4), c.lengths)
		equal(t, "times", times(s), []time.Duration{0, 27500 * time.Microsecond, 3e9, 3e9})
		a, b, part, other := s.Request(0).Prompt, s.Request(1).Prompt, s.Request(2).Prompt, s.Request(3).Prompt
		equal(t, "shared by two", common(a, b), 2*c.block)
		equal(t, "shared, then unique", common(a, part), c.block)
		equal(t, "shared with another block", common(a, other), 0)
		if slices.Equal(a[:c.block], a[c.block:2*c.block]) {
			t.Error("different blocks are equal")
		}
	}
}

// common is how many ids a and b begin with together.
func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func recorded(t *testing.T, source Source, jsonl bool) (string, []record.Request) {
	t.Helper()
	dir := t.TempDir()
	w, err := record.Create(dir, jsonl)
	if err != nil {
		t.Fatal(err)
	}
	var rows []record.Request
	for _, i := range []int{2, 0, 1, 3} { // as they ended
		q := source.Request(i)
		r := record.Request{Index: i, Tenant: q.Tenant, Class: q.Class, Kind: q.Kind, PromptTokens: len(q.Prompt), CapTokens: q.Cap, OutputTokens: q.Output,
			Intended: time.Duration(i*i+1) * time.Second, Outcome: record.OK}
		if i == 3 {
			r.OutputTokens, r.Outcome = 0, record.Shed
		}
		rows = append(rows, r)
		if err := w.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(&record.Run{Workload: source.Name(), WorkloadSpec: source.Describe(), SLOs: source.SLOs()}); err != nil {
		t.Fatal(err)
	}
	return dir, rows
}

func TestRecordedRequestsAreDrawnAgain(t *testing.T) {
	g := generator(t, "elastic-mixed", 5)
	g2, err := New(&g.spec, vocabulary, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []*Generator{g2, g2.Reseed(6)} {
		dir, _ := recorded(t, source, true)
		for _, name := range []string{"record:" + dir, "record:" + filepath.Join(dir, record.JSONLFile)} {
			s := open(t, name)
			equal(t, "times", times(s), []time.Duration{1e9, 2e9, 5e9, 10e9})
			equal(t, "objectives", s.SLOs(), source.SLOs())
			equal(t, "name", s.Name(), "record:"+filepath.Base(dir))
			for i := range 8 { // behind the end, too
				equal(t, fmt.Sprint(name, " request ", i), s.Request(i), source.Request(i))
			}
		}
	}
}

func TestRecordedLengths(t *testing.T) {
	g := generator(t, "seed", 5)
	dir, _ := recorded(t, g, false)
	a, b, c, d := g.Request(0), g.Request(1), g.Request(2), g.Request(3)
	// Nobody saw the last one's answer: the others' part of their caps.
	guess := (d.Cap*(a.Output+b.Output+c.Output) + (a.Cap+b.Cap+c.Cap)/2) / (a.Cap + b.Cap + c.Cap)
	if err := os.Remove(filepath.Join(dir, record.RunFile)); err != nil {
		t.Fatal(err)
	}
	s := open(t, "record:"+dir) // did not end, and is not known to be of a workload
	equal(t, "lengths", lengths(s, 4), [][3]int{
		{len(a.Prompt), a.Cap, a.Output}, {len(b.Prompt), b.Cap, b.Output}, {len(c.Prompt), c.Cap, c.Output}, {len(d.Prompt), d.Cap, guess},
	})
	if a := described(t, s); a.Estimated != 1 || a.Origin != nil || a.Trace != "record" {
		t.Errorf("%+v", a)
	}
	half := open(t, "record:"+dir+"?tokens=0.5&from=2s")
	equal(t, "half", lengths(half, 1)[0], [3]int{scale(len(b.Prompt), 0.5), scale(b.Cap, 0.5), scale(b.Output, 0.5)})
	equal(t, "times", times(half), []time.Duration{0, 3e9, 8e9})
}

// A run that replayed a trace has no workload that could be drawn again: its lengths are.
func TestRecordOfATrace(t *testing.T) {
	trace := open(t, "azure:"+file(t, "conv.csv", azureRows))
	dir, _ := recorded(t, trace, false)
	s := open(t, "record:"+dir)
	equal(t, "lengths", lengths(s, 3), lengths(trace, 3))
	if a := described(t, s); a.Origin != nil || a.Estimated != 1 {
		t.Errorf("%+v", a)
	}
}

func TestMalformedTraces(t *testing.T) {
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	const good = "2023-11-16 18:15:46.68,374,44\n"
	const line = `{"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}` + "\n"
	for _, c := range []struct{ name, content, want string }{
		{"azure:x.csv", "", "x.csv:1: no header"},
		{"azure:x.csv", "TIMESTAMP,GeneratedTokens\n", "x.csv:1: there is no column ContextTokens"},
		{"azure:x.csv", head + good + "2023-11-16,374,44\n", `x.csv:3: TIMESTAMP is "2023-11-16"`},
		{"azure:x.csv", head + good + "2023-11-16 18:15:46.67,1,1\n", "x.csv:3: TIMESTAMP is \"2023-11-16 18:15:46.67\", before"},
		{"azure:x.csv", head + good + good + "2023-11-16 18:15:46.68,0,44\n", `x.csv:4: ContextTokens is "0"`},
		{"azure:x.csv", head + "2023-11-16 18:15:46.68,374,many\n", `x.csv:2: GeneratedTokens is "many"`},
		{"azure:x.csv", head + good + "2023-11-16 18:15:46.68,374\n", "x.csv:3: wrong number of fields"},
		{"azure:x.csv", head + good + "a\"b,1,1\n", "x.csv:3: bare"},
		{"azure:x.csv", head, "no request in the window"},
		{"azure:x.csv?from=1h", head + good, "no request in the window from 1h0m0s"},
		{"azure:x.csv?rate=2", head + good, "no rate of its own"},
		{"azure:x.csv?rate=1e-12", head + good + "2023-11-16 18:15:47.68,1,1\n", "lasts for centuries"},
		{"azure:x.csv?tokens=1000", head + "2023-11-16 18:15:46.68,2000,1\n", "make it shorter with tokens"},
		{"azure:x.csv?tokens=0", head + good, "option tokens=0; allowed: tokens"},
		{"azure:x.csv?rate=nan", head + good, "option rate=nan"},
		{"azure:x.csv?from=-1s", head + good, "option from=-1s"},
		{"azure:x.csv?length=0s", head + good, "option length=0s"},
		{"azure:x.csv?token=1", head + good, "option token=1"},
		{"azure:x.csv?tokens=%zz", head + good, "options"},
		{"mooncake:x.jsonl", line + "{", "x.jsonl:2: unexpected end"},
		{"mooncake:x.jsonl", "\n" + strings.Replace(line, `"timestamp": 5, `, "", 1), "x.jsonl:2: timestamp"},
		{"mooncake:x.jsonl", line + strings.Replace(line, "5", "-5", 1), "x.jsonl:2: timestamp"},
		{"mooncake:x.jsonl", line + strings.Replace(line, "5", "4", 1), "x.jsonl:2: timestamp is 4, before"},
		{"mooncake:x.jsonl", line + strings.Replace(line, "600", "0", 1), "x.jsonl:2: input_length is 0"},
		{"mooncake:x.jsonl", strings.Replace(line, `"output_length": 1`, `"output_length": -1`, 1), "x.jsonl:1: output_length is -1"},
		{"mooncake:x.jsonl", strings.Replace(line, "2]", "2, 3]", 1), "x.jsonl:1: hash_ids has 3 ids"},
		{"mooncake:x.jsonl", strings.Replace(line, "[1", `["1"`, 1), "x.jsonl:1:"},
		{"record:requests.jsonl", `{"prompt_tokens": 1, "cap_tokens": 1}` + "\n" + `{"cap_tokens": 1}`, "requests.jsonl:2: prompt_tokens is 0"},
		{"record:requests.jsonl", `{"prompt_tokens": 1}`, "requests.jsonl:1: cap_tokens is 0"},
		{"record:requests.jsonl", `{"prompt_tokens": 1, "cap_tokens": 1, "intended_ns": -1}`, "requests.jsonl:1: intended_ns is -1"},
		{"record:requests.jsonl", `{"prompt_tokens": "1"}`, "requests.jsonl:1:"},
	} {
		kind, rest, _ := strings.Cut(c.name, ":")
		base, query, has := strings.Cut(rest, "?")
		name := kind + ":" + file(t, base, c.content)
		if has {
			name += "?" + query
		}
		if _, err := OpenSource(name, vocabulary, 1); !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	for name, want := range map[string]error{"azure:": ErrTrace, "azure:nobody": os.ErrNotExist, "mooncake:nobody": ErrTrace, "record:nobody": ErrTrace, "nobody": ErrSpec, "other:x": ErrSpec} {
		if _, err := OpenSource(name, vocabulary, 1); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenSource("azure:testdata/azure-conv-2023.csv", nil, 1); !errors.Is(err, ErrSpec) {
		t.Error(err)
	}
}

func TestGeneratorsAreSources(t *testing.T) {
	s, err := OpenSource("elastic-mixed", vocabulary, 3)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "name", s.Name(), "elastic-mixed")
	equal(t, "gold", s.SLOs()["gold"], record.SLO{TTFT: 600 * time.Millisecond, E2E: 5 * time.Second})
	s.SLOs()["gold"] = record.SLO{} // the caller's
	equal(t, "gold", s.SLOs()["gold"].E2E, 5*time.Second)
	if _, timed := s.(Timed); timed {
		t.Error("a drawn workload has times")
	}
}

// Whatever a file holds, reading it ends in rows that can be made, or in an error.
func FuzzTraces(f *testing.F) {
	f.Add([]byte(azureRows))
	f.Add([]byte(`{"timestamp": 0, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 2353]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		for kind, read := range map[string]func(string, []byte) ([]row, error){"azure": readAzure, "mooncake": readMooncake} {
			rows, err := read("x", content)
			if err != nil {
				if !errors.Is(err, ErrTrace) {
					t.Errorf("%s: %v", kind, err)
				}
				continue
			}
			s, err := newTrace(kind, "x", content, rows, options{tokens: 0.01, rate: 3}, vocabulary, 1)
			if err != nil {
				continue // no rows, or no rate
			}
			if at := times(s); !slices.IsSorted(at) || len(at) != len(rows) {
				t.Errorf("%s: times %v", kind, at)
			}
			for i := range min(len(rows), 4) {
				if r := s.Request(i); len(r.Prompt) < 1 || r.Output < 1 || r.Cap < r.Output {
					t.Errorf("%s: %+v", kind, r)
				}
			}
		}
	})
}
