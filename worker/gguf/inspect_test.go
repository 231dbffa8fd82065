package gguf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func inspect(b []byte) (*File, error) { return Inspect(bytes.NewReader(b), int64(len(b))) }

func TestInspectReadsWhatSynthWrites(t *testing.T) {
	s := small()
	data := synth(t, s, 7)
	f, err := inspect(data)
	if err != nil {
		t.Fatal(err)
	}
	v, err := newVocabulary(s)
	if err != nil {
		t.Fatal(err)
	}
	bos, eos, addBOS := uint64(v.endText), uint64(v.endTurn), false
	want := File{
		Version: 3, Architecture: "qwen2", Name: "synth-small-s7", Quantisation: "Q4_0", SizeBytes: int64(len(data)),
		ContextTokens: 1024, Layers: 2, Embedding: 64, FeedForward: 96, Heads: 4, KVHeads: 2, KVBytes: 2 * 2 * 2 * 16 * 2,
		Tokenizer: Tokenizer{
			Model: "gpt2", PreTokenizer: "qwen2", Vocab: 512, Merges: uint64(len(v.merges)), BOS: &bos, EOS: &eos,
			BOSText: EndOfText, EOSText: TurnEnd, AddBOS: &addBOS,
		},
		ChatTemplate: ChatTemplate,
	}
	for _, tensor := range s.tensors(v) {
		want.Parameters += uint64(tensor.elements())
	}
	want.DataOffset, want.Metadata, want.Tensors = f.DataOffset, f.Metadata, f.Tensors
	got, _ := json.Marshal(f)
	if expected, _ := json.Marshal(want); !bytes.Equal(got, expected) {
		t.Errorf("got  %s\nwant %s", got, expected)
	}
	if tokens, _ := f.Value("tokenizer.ggml.tokens"); !slices.Equal(tokens.(Array).Head[:2], []any{"Ā", "ā"}) {
		t.Errorf("token list is %v", tokens)
	}
	end := f.DataOffset
	for i, tensor := range s.tensors(v) {
		got := f.Tensors[i]
		if got.Name != tensor.name || got.Type != tensor.kind || got.Offset != end || got.Size != uint64(tensor.size()) || got.Elements() != uint64(tensor.elements()) {
			t.Errorf("tensor %d is %+v, want %s at %d", i, got, tensor.name, end)
		}
		end += got.Size + uint64(padding(int64(got.Size)))
	}
	if end != uint64(len(data)) {
		t.Errorf("tensors end at %d of %d", end, len(data))
	}
}

func TestEachString(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small.gguf")
	if _, err := SynthFile(t.Context(), path, small(), 1, nil); err != nil {
		t.Fatal(err)
	}
	f, err := InspectFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := newVocabulary(small())
	if err != nil {
		t.Fatal(err)
	}
	var merges []string
	if err := EachString(path, f, "tokenizer.ggml.merges", func(s string) error { merges = append(merges, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(merges, v.merges) {
		t.Errorf("read %d merges, want %d", len(merges), len(v.merges))
	}
	stop := errors.New("stop")
	if err := EachString(path, f, "tokenizer.ggml.merges", func(string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error of visit does not come back: %v", err)
	}
	for _, key := range []string{"tokenizer.ggml.token_type", "general.name", "none"} {
		if err := EachString(path, f, key, func(string) error { return stop }); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestInspectFileErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := InspectFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := InspectFile(dir); !errors.Is(err, ErrNotGGUF) {
		t.Errorf("folder: %v", err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("hello, world"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := InspectFile(text); !errors.Is(err, ErrNotGGUF) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), `"hell"`) {
		t.Errorf("text file: %v", err)
	}
}

// raw builds files byte by byte: numbers of the given widths, strings with their length.
func raw(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(binary.LittleEndian.AppendUint64(b, uint64(len(p))), p...)
		case []byte:
			b = append(b, p...)
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(p))
		default:
			b, _ = binary.Append(b, binary.LittleEndian, p)
		}
	}
	return b
}

// file is a version 3 file with these counts and this rest.
func file(tensors, pairs uint64, rest ...any) []byte {
	return append(raw([]byte(magic), 3, tensors, pairs), raw(rest...)...)
}

func TestInspectRefusesHostileFiles(t *testing.T) {
	const huge = uint64(math.MaxUint64)
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":                    {nil, ErrNotGGUF},
		"other magic":              {[]byte("GGML0000000000000000000000"), ErrNotGGUF},
		"version 1":                {raw([]byte(magic), 1, 0, 0), ErrVersion},
		"version 4":                {raw([]byte(magic), 4, uint64(0), uint64(0)), ErrVersion},
		"big endian":               {[]byte("GGUF\x00\x00\x00\x03"), ErrVersion},
		"ends in the counts":       {raw([]byte(magic), 3, uint64(1)), ErrTruncated},
		"huge pair count":          {file(0, huge), ErrTruncated},
		"huge tensor count":        {file(huge, 0), ErrTruncated},
		"huge key":                 {file(0, 1, huge), ErrTruncated},
		"key over the limit":       {file(0, 1, strings.Repeat("k", maxKeyBytes+1)), ErrInvalidFile},
		"huge string":              {file(0, 1, "k", int(typeString), huge), ErrTruncated},
		"unknown value type":       {file(0, 1, "k", 13, uint64(0)), ErrInvalidFile},
		"huge array":               {file(0, 1, "k", int(typeArray), int(typeUint64), huge), ErrTruncated},
		"array of wrapping length": {file(0, 1, "k", int(typeArray), int(typeUint64), huge/8+1), ErrTruncated},
		"huge array of strings":    {file(0, 1, "k", int(typeArray), int(typeString), uint64(1<<40), "", ""), ErrTruncated},
		"array of arrays":          {file(0, 1, "k", int(typeArray), int(typeArray), uint64(1), int(typeUint8), uint64(0)), ErrInvalidFile},
		"array of unknown type":    {file(0, 1, "k", int(typeArray), 99, uint64(0)), ErrInvalidFile},
		"string past the end":      {file(0, 1, "k", int(typeArray), int(typeString), uint64(9), raw("", "", "", "", "", "", "", "", huge)), ErrTruncated},
		"key twice":                {file(0, 2, "k", int(typeBool), uint8(1), "k", int(typeBool), uint8(0)), ErrInvalidFile},
		"alignment 3":              {file(1, 1, "general.alignment", int(typeUint32), 3, "t", 1, uint64(1), 0, uint64(0), make([]byte, 99)), ErrInvalidFile},
		"alignment 0":              {file(0, 1, "general.alignment", int(typeUint32), 0), ErrInvalidFile},
		"alignment is text":        {file(0, 1, "general.alignment", int(typeString), "32"), ErrInvalidFile},
		"five dimensions":          {file(1, 0, "t", 5), ErrInvalidFile},
		"too many elements":        {file(1, 0, "t", 2, uint64(1<<62), uint64(1<<62), 0, uint64(0)), ErrInvalidFile},
		"more bytes than exist":    {file(1, 0, "t", 1, uint64(1<<40), 0, uint64(0)), ErrTruncated},
		"half a block":             {file(1, 0, "t", 1, uint64(33), int(Q8_0), uint64(0)), ErrInvalidFile},
		"misaligned tensor":        {file(1, 0, "t", 1, uint64(1), 0, uint64(1), make([]byte, 99)), ErrInvalidFile},
		"tensor past the end":      {file(1, 0, "t", 1, uint64(1), 0, uint64(1<<63), make([]byte, 99)), ErrTruncated},
		"data cut off":             {file(1, 0, "t", 1, uint64(32), int(F32), uint64(0), make([]byte, 100)), ErrTruncated},
		"tensor twice":             {file(2, 0, "t", 1, uint64(1), 0, uint64(0), "t", 1, uint64(1), 0, uint64(0), make([]byte, 99)), ErrInvalidFile},
		"huge tensor name":         {file(1, 0, strings.Repeat("t", maxTensorName+1)), ErrInvalidFile},
	} {
		if f, err := inspect(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %+v", name, err, f)
		}
	}
}

// Every prefix of a file is an incomplete file, and says so.
func TestInspectNoticesTruncation(t *testing.T) {
	data := synth(t, small(), 1)
	for n := 4; n < len(data); n += 1 + n/97 {
		if _, err := inspect(data[:n]); !errors.Is(err, ErrTruncated) {
			t.Fatalf("first %d of %d bytes: %v", n, len(data), err)
		}
	}
}

func TestInspectAcceptsTheUnusual(t *testing.T) {
	f, err := inspect(raw([]byte(magic), 2, uint64(1), uint64(4),
		"general.architecture", int(typeString), "x\xff",
		"f", int(typeFloat32), float32(math.NaN()),
		"x\xff.context_length", int(typeInt64), int64(-5),
		"general.alignment", int(typeUint32), 8,
		"scalar", 0, int(F32), uint64(8), make([]byte, 30)))
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 2 || f.ContextTokens != 0 || f.Parameters != 1 || f.Quantisation != "F32" || f.Tensors[0].Offset%8 != 0 {
		t.Errorf("got %+v", f)
	}
	if v, _ := f.Value("f"); v != "NaN" {
		t.Errorf("NaN is %v, want text that JSON can carry", v)
	}
	if _, err := json.Marshal(f); err != nil {
		t.Error(err)
	}
	unknown, err := inspect(file(1, 0, "t", 1, uint64(7), 77, uint64(0), make([]byte, 99)))
	if err != nil || unknown.Tensors[0].Type.String() != "type_77" || unknown.Tensors[0].Size != 0 {
		t.Errorf("tensor of a later version's type: %+v, %v", unknown, err)
	}
}

// A small file must not make the reader allocate much more than its size.
func FuzzInspect(f *testing.F) {
	data := synth(f, small(), 1)
	head, err := inspect(data)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:head.DataOffset+64])
	f.Add(file(1, 1, "general.alignment", int(typeUint32), 64, "t", 2, uint64(32), uint64(1), int(Q4_0), uint64(0), make([]byte, 128)))
	f.Add(file(0, 2, "tokenizer.ggml.bos_token_id", int(typeUint32), 1, "tokenizer.ggml.tokens", int(typeArray), int(typeString), uint64(2), "a", "\xff"))
	f.Add(file(0, 1, "k", int(typeArray), int(typeFloat64), uint64(9), make([]byte, 72)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		head, err := inspect(data)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20+64*uint64(len(data)) {
			t.Errorf("%d bytes allocated for a file of %d", allocated, len(data))
		}
		if err != nil {
			if !errors.Is(err, ErrNotGGUF) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrInvalidFile) {
				t.Errorf("unexpected kind of error: %v", err)
			}
			return
		}
		for _, tensor := range head.Tensors {
			if tensor.Offset > uint64(len(data)) || tensor.Size > uint64(len(data))-tensor.Offset {
				t.Errorf("tensor %+v lies outside %d bytes", tensor, len(data))
			}
		}
		if _, err := json.Marshal(head); err != nil {
			t.Error(err)
		}
	})
}

// go test -bench Inspect ./worker/gguf
func BenchmarkInspectTiny(b *testing.B) {
	data := synth(b, preset(b, "tiny"), 1)
	for b.Loop() {
		if _, err := inspect(data); err != nil {
			b.Fatal(err)
		}
	}
}
