package schema

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTokensRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := Tokens(rapid.SliceOf(rapid.OneOf(
			rapid.Int32Range(0, 151_935),
			rapid.SampledFrom([]int32{0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455, 268_435_456, math.MaxInt32}),
		)).Draw(t, "ids"))
		var raw []byte
		for _, id := range ids {
			raw = binary.AppendUvarint(raw, uint64(id))
		}
		text, err := ids.MarshalText()
		if want := base64.RawStdEncoding.EncodeToString(raw); err != nil || string(text) != want {
			t.Fatalf("%v became %s, %v, want %s", ids, text, err, want)
		}
		var got Tokens
		if err := got.UnmarshalText(text); err != nil || !slices.Equal(got, ids) {
			t.Fatalf("%v became %s and then %v, %v", ids, text, got, err)
		}
		with, err := ids.AppendText([]byte("before"))
		if err != nil || string(with) != "before"+string(text) {
			t.Fatalf("appended %s, %v, want %s", with, err, text)
		}
	})
}

// TestTokensInJSON holds that nil and empty sequences are one on the wire, in a field that may be left out and in one
// that may not.
func TestTokensInJSON(t *testing.T) {
	type both struct {
		A Tokens `json:"a"`
		B Tokens `json:"b,omitempty"`
	}
	for _, empty := range []Tokens{nil, {}} {
		data, err := json.Marshal(both{empty, empty})
		if err != nil || string(data) != `{"a":""}` {
			t.Errorf("got %s, %v", data, err)
		}
	}
	got := both{Tokens{1}, Tokens{1}}
	if err := json.Unmarshal([]byte(`{"a":"","b":""}`), &got); err != nil || got.A != nil || got.B != nil {
		t.Errorf("got %#v, %v", got, err)
	}
}

func TestTokensRefuseNegative(t *testing.T) {
	for _, id := range []int32{-1, math.MinInt32} {
		if text, err := (Tokens{1, id}).MarshalText(); text != nil || !errors.Is(err, ErrTokens) {
			t.Errorf("%d: got %s, %v", id, text, err)
		}
	}
}

func TestTokensRefuse(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
	}{
		{"padding", "AQ=="},
		{"one character", "A"},
		{"stray bits", "AR"},
		{"line break", "AQ\n"},
		{"line break inside", "AQ\r\nEB"},
		{"url alphabet", "_w"},
		{"not base64", "A!"},
		{"cut off", raw64(0x80)},
		{"cut off after an id", raw64(1, 0xff, 0xff)},
		{"2³¹", raw64(0x80, 0x80, 0x80, 0x80, 0x08)},
		{"2³²", raw64(0x80, 0x80, 0x80, 0x80, 0x10)},
		{"-1 as 64 bits", raw64(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)},
		{"65 bits", raw64(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)},
		{"0 in two bytes", raw64(0x80, 0x00)},
		{"127 in two bytes", raw64(0xff, 0x00)},
		{"1 in five bytes", raw64(0x81, 0x80, 0x80, 0x80, 0x00)},
		{"1 in six bytes", raw64(0x81, 0x80, 0x80, 0x80, 0x80, 0x00)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Tokens{7}
			if err := got.UnmarshalText([]byte(c.text)); !errors.Is(err, ErrTokens) {
				t.Errorf("%q: got %v, %v", c.text, got, err)
			}
			if !slices.Equal(got, Tokens{7}) {
				t.Errorf("the receiver became %v", got)
			}
		})
	}
}

func raw64(b ...byte) string { return base64.RawStdEncoding.EncodeToString(b) }

// FuzzTokens holds that any text is refused or is the one text of its sequence, and that memory stays in proportion.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{"", "AQ", "AR", "AQ==", "gAA", "gICAgAg", "/////wc", "/////w8", "AQ\n", "AAAAAAAA"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		kept := bytes.Clone(text)
		var ids Tokens
		if err := ids.UnmarshalText(text); err != nil {
			if !errors.Is(err, ErrTokens) || ids != nil {
				t.Fatalf("%q: %v, %v", text, ids, err)
			}
			return
		}
		// An id takes at least one byte, which is four thirds of a character.
		if len(ids) > len(text)*3/4 || cap(ids) > len(text) {
			t.Fatalf("%q: %d ids in room for %d", text, len(ids), cap(ids))
		}
		for _, id := range ids {
			if id < 0 {
				t.Fatalf("%q holds %d", text, id)
			}
		}
		back, err := ids.MarshalText()
		if err != nil || !bytes.Equal(back, kept) || !bytes.Equal(text, kept) {
			t.Fatalf("%q became %v and then %q, %v", kept, ids, back, err)
		}
	})
}

// TestTokensTakeMemoryInProportion decodes a text that promises many ids and then breaks.
func TestTokensTakeMemoryInProportion(t *testing.T) {
	text := []byte(base64.RawStdEncoding.EncodeToString(append(make([]byte, 3000), 0x80)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var ids Tokens
	if ids.UnmarshalText(text) == nil {
		t.Fatal("accepted")
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	// 4 bytes for each id of one byte, the decoded bytes, the error.
	if limit := uint64(6 * len(text)); allocated > limit {
		t.Errorf("%d bytes for a text of %d", allocated, len(text))
	}
}
