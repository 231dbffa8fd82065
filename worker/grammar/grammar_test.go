package grammar_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/worker/grammar"
	"github.com/cadence-slo/cadence/worker/grammar/grammartest"
)

var update = flag.Bool("update", false, "rewrite testdata/*.gbnf with what the code writes now")

// schemas are those of testdata, with instances that their grammars must have, and texts that they must not have.
var schemas = []struct {
	name, schema string
	yes, no      []string
}{
	{"any_object", grammar.Any, []string{`{}`, `{"a": [1, -2.5e3, "x\u00e9\\", true, null, {"b":{}}]}`, "{\n  \"a\": 1\n}"}, []string{`[]`, `{"a":}`, `{"a":1,}`, `{"\ud800":1}`, "{\"a\n\":1}"}},
	{"any_value", `true`, []string{`1`, `"x"`, `[]`, `null`, `{"a":[{}]}`}, []string{``, `nul`, `01`, `"`}},
	{"person", `{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":20},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"}},"required":["name","age"],"additionalProperties":false}`,
		[]string{`{"name":"Ann","age":7}`, `{"name": "日本", "age": 150, "email": "a.b@c-d.org"}`},
		[]string{`{"name":"","age":7}`, `{"age":7,"name":"Ann"}`, `{"name":"Ann","age":151}`, `{"name":"Ann"}`, `{"name":"Ann","age":7,"x":1}`}},
	{"optional_first", `{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"boolean"},"c":{"const":1}},"required":["b"]}`,
		[]string{`{"b":true}`, `{"a":null,"b":false,"c":1}`, `{"b":true,"c":1}`}, []string{`{}`, `{"a":null}`, `{,"b":true}`}},
	{"all_optional", `{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}}}`,
		[]string{`{}`, `{"a":null}`, `{"b":null}`, `{"a":null,"c":null}`, `{"a":null,"b":null,"c":null}`}, []string{`{"c":null,"a":null}`, `{"a":null,}`}},
	{"map", `{"type":"object","additionalProperties":{"type":"array","items":{"type":"number"},"maxItems":2}}`,
		[]string{`{}`, `{"x":[],"y":[1,2.5]}`}, []string{`{"x":[1,2,3]}`, `{"x":1}`}},
	{"empty_object", `{"type":"object","properties":{},"additionalProperties":false}`, []string{`{}`, `{ }`}, []string{`{"a":1}`}},
	{"arrays", `{"type":"array","items":{"type":"array","items":{"enum":["a","b"]},"minItems":2,"maxItems":3},"minItems":1}`,
		[]string{`[["a","b"]]`, `[["a","b"], ["b","b","a"]]`}, []string{`[]`, `[["a"]]`, `[["a","b","a","a"]]`}},
	{"no_items", `{"type":"array","maxItems":0}`, []string{`[]`}, []string{`[1]`}},
	{"enum", `{"enum":["a\"b\\c","\n\u0001é",-1.50,true,null,{"k":[1,"x"]}]}`, []string{`"a\"b\\c"`, `"\n\u0001é"`, `-1.50`, `{"k":[1,"x"]}`}, []string{`"a`, `1`}},
	{"typed_enum", `{"type":["string","integer"],"enum":["a",1,2.0,2.5,null]}`, []string{`"a"`, `1`, `2.0`}, []string{`2.5`, `null`}},
	{"types", `{"type":["string","null"],"maxLength":3}`, []string{`"abc"`, `null`, `""`}, []string{`"abcd"`}},
	{"union", `{"anyOf":[{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"number","exclusiveMinimum":0}},"required":["kind","r"]},{"type":"object","properties":{"kind":{"const":"square"},"side":{"type":"number","minimum":0}},"required":["kind","side"]},{"type":"null"}]}`,
		[]string{`{"kind":"circle","r":0.5}`, `{"kind":"square","side":0}`, `null`}, []string{`{"kind":"circle","side":1}`, `{"kind":"circle","r":0}`, `{"kind":"circle","r":0.0}`}},
	{"list", `{"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"]}},"$ref":"#/$defs/node"}`,
		[]string{`{"value":1,"next":null}`, `{"value":1,"next":{"value":-20,"next":{"value":0,"next":null}}}`}, []string{`{"value":1}`, `{"value":1.5,"next":null}`}},
	{"tree", `{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}}},"required":["name"]}`,
		[]string{`{"name":"a","children":[{"name":"b"},{"name":"c","children":[]}]}`}, []string{`{"children":[]}`}},
	{"expression", `{"definitions":{"e":{"oneOf":[{"type":"object","properties":{"op":{"enum":["+","-"]},"l":{"$ref":"#/definitions/e"},"r":{"$ref":"#/definitions/e"}},"required":["op","l","r"]},{"type":"object","properties":{"op":{"const":"num"},"v":{"type":"number"}},"required":["op","v"]}]}},"allOf":[{"$ref":"#/definitions/e"}],"description":"d"}`,
		[]string{`{"op":"+","l":{"op":"num","v":1},"r":{"op":"num","v":2}}`}, []string{`{"op":"num"}`}},
	{"formats", `{"type":"object","properties":{"d":{"type":"string","format":"date"},"t":{"type":"string","format":"time"},"dt":{"type":"string","format":"date-time"},"u":{"type":"string","format":"uuid"},"ip":{"type":"string","format":"ipv4"}},"required":["d","t","dt","u","ip"]}`,
		[]string{`{"d":"2024-02-28","t":"23:59:00.5Z","dt":"1999-12-31T00:00:00+01:00","u":"01890a5d-ac96-774b-bcce-b302099a8057","ip":"255.0.19.200"}`}, []string{`{"d":"2024-13-01"}`}},
	{"integers", `{"type":"array","items":{"anyOf":[{"type":"integer","minimum":-120,"maximum":-7},{"type":"integer","exclusiveMinimum":-1,"exclusiveMaximum":1001},{"type":"integer","minimum":5000}]}}`,
		[]string{`[-120,-119,-99,-10,-7,0,1,9,10,99,100,999,1000,5000,123456]`}, []string{`[-121]`, `[-6]`, `[-1]`, `[1001]`, `[4999]`, `[00]`, `[-0]`}},
	{"decimals", `{"type":"array","items":{"type":"number","minimum":-2,"exclusiveMaximum":11}}`,
		[]string{`[-2,-2.00,-1.99,-0.5,0,0.0,1.5,10.999]`}, []string{`[-2.01]`, `[11]`, `[11.0]`, `[-3]`, `[1e5]`}},
	{"unit_interval", `{"type":"number","minimum":0,"maximum":1}`, []string{`0`, `0.25`, `1`, `1.0`}, []string{`1.01`, `-0.1`, `2`}},
	{"annotated", `{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"T","description":"d","type":"boolean","default":true,"examples":[true],"deprecated":true}`, []string{`true`, `false`}, []string{`null`}},
	{"odd_names", `{"type":"object","properties":{"a\"b\\\n":{"type":"null"},"é/~":{"type":"null"}},"required":["a\"b\\\n","é/~"]}`, []string{`{"a\"b\\\n":null,"é/~":null}`}, []string{`{"a":null}`}},
}

func TestGolden(t *testing.T) {
	for _, c := range schemas {
		t.Run(c.name, func(t *testing.T) {
			got, err := grammar.Compile([]byte(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", c.name+".gbnf")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs (run with -update to accept):\n got: %s\nwant: %s", file, got, want)
			}
		})
	}
}

// Every sentence is JSON that satisfies the schema, and the instances that were thought of are sentences.
func TestSentencesSatisfySchemas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range schemas {
		t.Run(c.name, func(t *testing.T) {
			g := compile(t, c.schema)
			for _, text := range c.yes {
				if err := grammartest.Valid(c.schema, text); err != nil {
					t.Fatalf("the test is wrong: %s: %v", text, err)
				}
				if !g.Matches(text) {
					t.Errorf("%s is no sentence", text)
				}
			}
			for _, text := range c.no {
				if g.Matches(text) {
					t.Errorf("%s is a sentence", text)
				}
			}
			for range 300 {
				text := g.Sentence(rng, 8)
				if err := grammartest.Valid(c.schema, text); err != nil {
					t.Fatalf("sentence %s: %v", text, err)
				}
				if !grammartest.Prefix(text) || !grammartest.Prefix(text[:rng.IntN(len(text))]) {
					t.Fatalf("a beginning of %s is no beginning of JSON", text)
				}
			}
		})
	}
}

func compile(t *testing.T, schema string) *grammartest.Grammar {
	t.Helper()
	text, err := grammar.Compile([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	g, err := grammartest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Bounds of numbers, against comparing.
func TestBoundsOfNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		lo := rng.IntN(2400) - 1200
		hi := lo + rng.IntN(1+rng.IntN(2000))
		whole := compile(t, fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d}`, lo, hi))
		decimal := compile(t, fmt.Sprintf(`{"type":"number","exclusiveMinimum":%d,"maximum":%d}`, lo-1, hi))
		for _, v := range []int{lo - 1, lo, lo + 1, (lo + hi) / 2, hi - 1, hi, hi + 1, 0, -lo, -hi, 10 * hi, rng.IntN(4000) - 2000} {
			if got, want := whole.Matches(fmt.Sprint(v)), lo <= v && v <= hi; got != want {
				t.Errorf("integer %d in [%d, %d]: %v", v, lo, hi, got)
			}
			for _, tenth := range []int{0, 5} {
				if v < 0 {
					tenth = -tenth
				}
				x := 10*v + tenth
				text := strings.Replace(fmt.Sprintf("%.1f", float64(x)/10), "-0.0", "0.0", 1)
				if got, want := decimal.Matches(text), 10*(lo-1) < x && x <= 10*hi; got != want {
					t.Errorf("number %s in (%d, %d]: %v", text, lo-1, hi, got)
				}
			}
		}
	}
}

func TestErrorsNamePaths(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"a",`, 300), ",")
	var defs []string
	for i := range grammar.MaxReferences + 1 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1))
	}
	for _, c := range []struct{ schema, path, reason string }{
		{`{"$defs":{` + strings.Join(defs, ",") + `,"d257":{}},"$ref":"#/$defs/d0"}`, "#/$defs/d255/$ref", "more than 256"},
		{``, "#", "not JSON"},
		{`{"type":"object"} x`, "#", "follows"},
		{`{"type":"object"`, "#", "not JSON"},
		{"{\"a\":\"\xff\"}", "#", "UTF-8"},
		{`7`, "#", "a number"},
		{`false`, "#", "nothing satisfies"},
		{`{"type":"string","type":"null"}`, "#", "twice"},
		{`{"type":"text"}`, "#/type", "name of a type"},
		{`{"type":[]}`, "#/type", "no type"},
		{`{"type":["null","null"]}`, "#/type/1", "twice"},
		{`{"type":"string","pattern":"a+"}`, "#/pattern", "not supported"},
		{`{"type":"string","format":"iri"}`, "#/format", "not supported"},
		{`{"type":"string","format":"date","maxLength":3}`, "#/format", "length"},
		{`{"type":"string","minLength":5,"maxLength":3}`, "#/maxLength", "below"},
		{`{"type":"string","maxLength":100000}`, "#/maxLength", "1000"},
		{`{"type":"string","maxLength":1.5}`, "#/maxLength", "whole"},
		{`{"type":"number","multipleOf":2}`, "#/multipleOf", "not supported"},
		{`{"type":"number","minimum":0.5}`, "#/minimum", "whole"},
		{`{"type":"number","minimum":1,"exclusiveMinimum":1}`, "#/exclusiveMinimum", "beside"},
		{`{"type":"integer","minimum":3,"maximum":2}`, "#", "within"},
		{`{"type":"number","minimum":3,"exclusiveMaximum":3}`, "#", "within"},
		{`{"type":"object","properties":{"a/b":{"type":"array","items":{"not":{}}}}}`, "#/properties/a~1b/items/not", "not supported"},
		{`{"type":"object","properties":{"a":{"type":"array","prefixItems":[]}}}`, "#/properties/a/prefixItems", "not supported"},
		{`{"type":"object","patternProperties":{}}`, "#/patternProperties", "not supported"},
		{`{"type":"object","properties":{"a":{}},"required":["a","b"]}`, "#/required/1", "'b'"},
		{`{"type":"object","required":["b"]}`, "#/required", "describe"},
		{`{"type":"object","properties":[]}`, "#/properties", "an array"},
		{`{"type":"object","properties":{"a":{}},"required":"a"}`, "#/required", "a string"},
		{`{"anyOf":[]}`, "#/anyOf", "schemas"},
		{`{"anyOf":[{"type":"null"},{"anyOf":[{"type":"x"}]}]}`, "#/anyOf/1/anyOf/0/type", "name of a type"},
		{`{"anyOf":[{"type":"null"}],"type":"null"}`, "#/type", "beside 'anyOf'"},
		{`{"allOf":[{},{}]}`, "#/allOf", "one schema"},
		{`{"enum":[]}`, "#/enum", "no value"},
		{`{"enum":["a"],"type":"null"}`, "#/enum", "no value"},
		{`{"const":"a","type":"null"}`, "#/const", "type"},
		{`{"$ref":"#/$defs/x"}`, "#/$ref", "nothing"},
		{`{"$ref":"http://example.org/s"}`, "#/$ref", "same schema"},
		{`{"$ref":"#"}`, "#/$ref", "itself"},
		{`{"$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}},"type":"array","items":{"$ref":"#/$defs/a"}}`, "/$ref", "itself"},
		{`{"minLength":3}`, "#/minLength", "not supported without 'type'"},
		{`{"type":"number","minLength":3}`, "#/minLength", "not supported beside 'type'"},
		{strings.Repeat(`{"items":`, 70) + `{}` + strings.Repeat(`}`, 70), "#" + strings.Repeat("/items", 33)[:195], "deeper"},
		{`{"enum":[` + strings.Repeat(`"`+strings.Repeat("x", 300)+`",`, 300) + `1]}`, "#", "bytes"},
		{`{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000,"items":{"type":"array","maxItems":1000}}}}}}}}}}`, "/items", "too large"},
		{`{"default":[0` + strings.Repeat(`,0`, grammar.MaxNodes) + `]}`, "#/default/16382", "16384 values"},
		{`{"anyOf":[` + strings.ReplaceAll(many, `"a"`, `{}`) + `]}`, "#/anyOf", "more than"},
	} {
		_, err := grammar.Compile([]byte(c.schema))
		var e *grammar.Error
		if !errors.As(err, &e) || !strings.Contains(e.Path, c.path) || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%.120s: %v, want %s: …%s…", c.schema, err, c.path, c.reason)
		}
	}
}

// A schema cannot make compiling it take many times its own size: that happens before anyone has decided to serve it.
func TestMemory(t *testing.T) {
	fill := func(before, each, after string) string {
		n := (grammar.MaxSchemaBytes - len(before) - len(after)) / len(each)
		return before + strings.TrimSuffix(strings.Repeat(each, n), ",") + after
	}
	key := strings.Repeat("k", 32_000)
	for name, schema := range map[string]string{
		"values below a long key": `{"default":{"` + key + `":[0` + strings.Repeat(`,0`, 16_000) + `]}}`,
		"values below long keys":  `{"default":{"` + key[:16_000] + `":{"` + key[:16_000] + `":[0` + strings.Repeat(`,0`, 16_000) + `]}}}`,
		"escapes in a long key":   `{"default":{"` + strings.Repeat("~/", 16_000) + `":[0` + strings.Repeat(`,0`, 16_000) + `]}}`,
		"objects":                 fill(`{"default":[`, `{},`, `]}`),
		"one-letter strings":      fill(`{"enum":[`, `"a",`, `]}`),
		"references to the whole": fill(`{"anyOf":[{"type":"null"},{"items":{"anyOf":[`, `{"$ref":"#"},`, `]}}]}`),
	} {
		const most = 16 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := grammar.Compile([]byte(schema))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > most {
			t.Errorf("%s: %d bytes of schema take %d, allowed are %d (%.200v)", name, len(schema), used, most, err)
		}
	}
}

// Alternatives that begin alike multiply where they are nested: such schemas are refused, others of the same shape are not.
func TestWidth(t *testing.T) {
	ref := func(first string) string {
		return `{"type":"object","properties":{` + first + `,"x":{"$ref":"#/$defs/d"}},"required":["k","x"]}`
	}
	chain := `{"$defs":{`
	for i := range 20 {
		chain += fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	chain += `"d20":{"type":"number"}},"$ref":"#/$defs/d0"}`
	for _, c := range []struct {
		schema string
		ok     bool
	}{
		{`{"$defs":{"d":{"anyOf":[` + ref(`"k":{"type":"null"}`) + `,` + ref(`"k":{"const":null}`) + `]}},"$ref":"#/$defs/d"}`, false},
		{`{"$defs":{"d":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/d"}},{"type":"array","items":{"$ref":"#/$defs/d"},"minItems":1}]}},"$ref":"#/$defs/d"}`, false},
		{`{"$defs":{"d":{"anyOf":[{"type":"object","additionalProperties":{"$ref":"#/$defs/d"}},{}]}},"$ref":"#/$defs/d"}`, false},
		{chain, false},
		{`{"$defs":{"d":{"anyOf":[{"type":"null"},` + ref(`"k":{"const":"a"}`) + `,` + ref(`"k":{"enum":["b","c"]}`) + `]}},"$ref":"#/$defs/d"}`, true},
		{`{"anyOf":[{"type":"object","properties":{"a":{}}},{"type":"object","properties":{"a":{},"b":{}}},{"type":"array"},{"type":"string"}]}`, true},
	} {
		_, err := grammar.Compile([]byte(c.schema))
		var e *grammar.Error
		if c.ok && err != nil || !c.ok && (!errors.As(err, &e) || !strings.Contains(e.Reason, "alike") || !strings.Contains(e.Path, "anyOf")) {
			t.Errorf("%s: %v", c.schema, err)
		}
	}
}

// Of several faults it is always the same one that is reported: the widest alternatives, the first of equals.
func TestWidthNamesOnePlace(t *testing.T) {
	const open = `{"type":"array","items":{"$ref":"#/$defs/%s"}}`
	var defs, refs []string
	for i := range 12 {
		loop := fmt.Sprintf(open, fmt.Sprint("d", i))
		alternatives := loop + "," + loop
		if i == 7 {
			alternatives += "," + loop // grows faster
		}
		defs = append(defs, fmt.Sprintf(`"d%d":{"anyOf":[%s]}`, i, alternatives))
		refs = append(refs, fmt.Sprintf(`"p%d":{"$ref":"#/$defs/d%d"}`, i, i))
	}
	for widest, n := range map[string]int{"#/$defs/d0/anyOf": 7, "#/$defs/d7/anyOf": 12} {
		schema := []byte(`{"$defs":{` + strings.Join(defs, ",") + `},"properties":{` + strings.Join(refs[:n], ",") + `}}`)
		for range 20 {
			_, err := grammar.Compile(schema)
			var e *grammar.Error
			if !errors.As(err, &e) || e.Path != widest {
				t.Fatalf("%v, want %s", err, widest)
			}
		}
	}
}

// Whatever comes in, what comes out is within its bounds and can be parsed.
func FuzzCompile(f *testing.F) {
	for _, c := range schemas {
		f.Add([]byte(c.schema))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		text, err := grammar.Compile(schema)
		if err != nil {
			if e := new(grammar.Error); !errors.As(err, &e) || e.Path == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(text) > grammar.MaxGrammarBytes {
			t.Fatalf("%d bytes", len(text))
		}
		if _, err := grammartest.Parse(text); err != nil {
			t.Fatal(err)
		}
	})
}

// A schema of usual size.
//
//	go test -run xxx -bench Compile ./worker/grammar
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := grammar.Compile([]byte(schemas[2].schema)); err != nil {
			b.Fatal(err)
		}
	}
}

// A keyword that is never supported is not said to be so beside another.
func TestUnknownKeyword(t *testing.T) {
	for _, text := range []string{`{"type":"string","pattern":"a+"}`, `{"enum":["a"],"pattern":"a+"}`, `{"pattern":"a+"}`} {
		_, err := grammar.Compile([]byte(text))
		var e *grammar.Error
		if !errors.As(err, &e) || e.Reason != "'pattern' is not supported" {
			t.Errorf("%s: %v", text, err)
		}
	}
}
