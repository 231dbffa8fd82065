package openai

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

// Bodies that are no single, valid JSON object get a 400 that says where and what.
func TestInvalidJSON(t *testing.T) {
	refuseChat(t, []refusal{
		{``, "", "empty"},
		{" \n\t ", "", "empty"},
		{`null`, "", "a JSON object"},
		{`[]`, "", "a JSON object"},
		{`"x"`, "", "a JSON object"},
		{`nonsense`, "", "unexpected 'n'"},
		{"\ufeff{}", "", `'\ufeff'`},
		{`{`, "", "ends at byte 1"},
		{`{"model"`, "", "':'"},
		{`{"model":`, "", "a value"},
		{`{"model":"m"`, "", "',' or '}'"},
		{`{"model":"m",}`, "", "a key"},
		{`{model:"m"}`, "", "a key"},
		{`{'model':'m'}`, "", `'\''`},
		{`{"model" "m"}`, "", "':'"},
		{`{"x":tru}`, "", "true"},
		{`{"x":nul}`, "", "null"},
		{`{"x":+1}`, "", "unexpected '+'"},
		{`{"x":.5}`, "", "unexpected '.'"},
		{`{"x":01}`, "", "unexpected '1'"},
		{`{"x":1.}`, "", "a digit"},
		{`{"x":1e}`, "", "a digit"},
		{`{"x":-}`, "", "a digit"},
		{`{"x":NaN}`, "", "unexpected 'N'"},
		{`{"x":[1,]}`, "", "a value"},
		{`{"x":[1 2]}`, "", "',' or ']'"},
		{`{"x":"abc}`, "", "the end of a string"},
		{"{\"x\":\"a\nb\"}", "", "control character (0x0a)"},
		{`{"x":"\q"}`, "", "unknown escape"},
		{`{"x":"\u12g4"}`, "", "hexadecimal"},
		{`{"x":"\u12`, "", "hexadecimal"},
		{`{"x":"\`, "", "an escape"},
		{`{"x":"\ud83d"}`, "", "lone surrogate"},
		{`{"x":"\ud83d\u0041"}`, "", "lone surrogate"},
		{`{"x":"\ude00\ud83d"}`, "", "lone surrogate"},
		{"{\"x\":\"\xff\"}", "", "not UTF-8 at byte 6"},
		{"{\"x\":\"\xed\xa0\x80\"}", "", "not UTF-8 at byte 6"},
		{"{\"x\":\"é\xc3\"}", "", "not UTF-8 at byte 8"},
		{"\xff", "", "not UTF-8 at byte 0"},
		{chat("") + `{}`, "", "the end of the body"},
		{chat("") + `x`, "", "the end of the body"},
		{chat("") + `,`, "", "the end of the body"},
		{`{"x":` + strings.Repeat("[", 100_000), "", "deeper than 64"},
		{`{"x":` + strings.Repeat(`{"a":`, 100_000), "", "deeper than 64"},
		{`{"model":"m","model":"m",` + hello + `}`, "model", "twice"},
		{`{"mod\u0065l":"m","model":null,` + hello + `}`, "model", "twice"},
		{chat(`"seed":1,"seed":2`), "seed", "twice"},
		{chat(`"tools":null,"tools":null`), "tools", "twice"},
	})
	for _, ok := range []string{chat("") + " \r\n\t", " " + chat(""), chat(`"x":1,"x":2`), chat(`"x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63)),
		chat(`"":"","x":[[],{},[{}],-0.0e-0,1E+2,"\u0000"]`)} {
		mustChat(t, ok)
	}
}

// The whole numbers of a JSON text, checked against exact rational arithmetic.
func TestInteger(t *testing.T) {
	for _, text := range []string{"0", "-0", "0.0", "0e99999", "1", "-1", "10", "1.0", "1.5", "-1.5", "15e-1", "150e-1", "1.50e1", "0.001e3", "0.001e2",
		"100e-2", "100e-3", "1e18", "1e19", "-1e19", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		"922337203685477580.7e1", "9223372036854775807.0", "9223372036854775807.5", "0.9223372036854775807e19", "12345678901234567890123e-4",
		"12345678901234567890000e-4", "1e-999", "1e300", "-1e300", "10.10", "00.0"[1:]} {
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal(text)
		}
		v, exact := integer([]byte(text))
		switch {
		case !want.IsInt():
			if exact != fraction {
				t.Errorf("%s: %d %v, want a fraction", text, v, exact)
			}
		case want.Num().IsInt64():
			if exact != whole || v != want.Num().Int64() {
				t.Errorf("%s: %d %v, want %v", text, v, exact, want)
			}
		default:
			if exact != clamped || (v > 0) != (want.Sign() > 0) || v != 1<<63-1 && v != -1<<63 {
				t.Errorf("%s: %d %v, want it clamped", text, v, exact)
			}
		}
	}
	if v, exact := integer([]byte("1e99999999999999999999999999")); exact != clamped || v != 1<<63-1 {
		t.Errorf("huge exponent: %d %v", v, exact)
	}
	if _, exact := integer([]byte("1e-99999999999999999999999999")); exact != fraction {
		t.Errorf("tiny exponent: %v", exact)
	}
}

func FuzzInteger(f *testing.F) {
	for _, s := range []string{"0", "-12.50e2", "1e18", "99999999999999999999", "0.00001e5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var n json.Number
		if json.Unmarshal([]byte(text), &n) != nil || strings.TrimSpace(text) != n.String() || len(text) > 60 || n == "" {
			return // not the text of a number
		}
		if _, e, found := strings.Cut(strings.ToLower(n.String()), "e"); found && len(strings.TrimLeft(e, "+-0")) > 3 {
			return // the oracle would compute a number of a million digits
		}
		want, ok := new(big.Rat).SetString(n.String())
		if !ok {
			t.Fatalf("oracle does not read %q", n)
		}
		v, exact := integer([]byte(n))
		if (exact == fraction) == want.IsInt() || exact == whole && want.Num().Cmp(big.NewInt(v)) != 0 || exact == clamped && want.Num().IsInt64() {
			t.Fatalf("%q: %d %v, want %v", n, v, exact, want)
		}
	})
}
