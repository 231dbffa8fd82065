package gguf

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"strings"
)

// File is the head of a GGUF file. Numbers that the file does not state are 0, texts "".
type File struct {
	Version       uint32     `json:"version"`
	Architecture  string     `json:"architecture"`
	Name          string     `json:"name"`
	Parameters    uint64     `json:"parameters"`
	Quantisation  string     `json:"quantisation"` // as the file names it, otherwise the type of most of its weights
	SizeBytes     int64      `json:"size_bytes"`
	DataOffset    uint64     `json:"data_offset_bytes"`
	ContextTokens uint64     `json:"context_tokens"` // what the model was trained for
	Layers        uint64     `json:"layers"`
	Embedding     uint64     `json:"embedding"`
	FeedForward   uint64     `json:"feed_forward"`
	Heads         uint64     `json:"heads"`
	KVHeads       uint64     `json:"kv_heads"`
	KVBytes       uint64     `json:"kv_bytes_per_token"` // of an f16 cache, 0 when the shape is not stated
	Tokenizer     Tokenizer  `json:"tokenizer"`
	ChatTemplate  string     `json:"chat_template"`
	Metadata      []KeyValue `json:"metadata"` // in file order
	Tensors       []Tensor   `json:"tensors"`  // in file order
}

// Tokenizer is what a file says of its tokenizer. Ids are nil when not stated.
type Tokenizer struct {
	Model        string  `json:"model"`         // "gpt2" is byte-level BPE, "llama" SentencePiece
	PreTokenizer string  `json:"pre_tokenizer"` // how text is cut before the merges
	Vocab        uint64  `json:"vocab_tokens"`
	Merges       uint64  `json:"merges"`
	BOS          *uint64 `json:"bos_id"`
	EOS          *uint64 `json:"eos_id"`
	BOSText      string  `json:"bos_text"`
	EOSText      string  `json:"eos_text"`
	AddBOS       *bool   `json:"add_bos"`
}

// KeyValue is one metadata pair. Value is a bool, string, any of Go's sized numbers, or an [Array].
type KeyValue struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

// Array is a metadata array, of which only the first few elements are kept.
type Array struct {
	Type   string `json:"type"` // of the elements
	Length uint64 `json:"length"`
	Head   []any  `json:"head"` // the first min(Length, 8) elements
	offset uint64 // of the first element in the file
}

// Tensor is one row of the tensor table.
type Tensor struct {
	Name   string     `json:"name"`
	Type   TensorType `json:"type"`
	Shape  []uint64   `json:"shape"`        // ggml order: Shape[0] is contiguous; at most 4
	Offset uint64     `json:"offset_bytes"` // from the start of the file
	Size   uint64     `json:"size_bytes"`   // 0 for a type that is not known here
}

// Elements is the number of weights.
func (t Tensor) Elements() uint64 {
	n := uint64(1)
	for _, d := range t.Shape {
		n *= d // checked when the table was read
	}
	return n
}

// Value looks up a metadata key.
func (f *File) Value(key string) (any, bool) {
	for _, kv := range f.Metadata {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return nil, false
}

// InspectFile is [Inspect] of the file at path; its errors name the path.
func InspectFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrNotGGUF, path)
	}
	head, err := Inspect(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, path)
	}
	return head, nil
}

// Inspect reads the head of a GGUF file of size bytes and checks that its tensors lie inside it. It reads no weights. The
// error wraps [ErrNotGGUF], [ErrVersion], [ErrTruncated], [ErrInvalidFile], or is that of r.
func Inspect(r io.ReaderAt, size int64) (*File, error) {
	if size < int64(len(magic)) {
		return nil, fmt.Errorf("%w: %d bytes long", ErrNotGGUF, size)
	}
	d := newReader(r, size)
	var first [len(magic)]byte
	if err := d.read(first[:]); err != nil {
		return nil, err
	}
	if string(first[:]) != magic {
		return nil, fmt.Errorf("%w: it starts with %q", ErrNotGGUF, first)
	}
	f := &File{SizeBytes: size}
	var err error
	if f.Version, err = d.u32(); err != nil {
		return nil, err
	}
	if f.Version != 2 && f.Version != 3 {
		if f.Version != 0 && f.Version&0xffff == 0 {
			return nil, fmt.Errorf("%w: big-endian, version %d", ErrVersion, bits.ReverseBytes32(f.Version))
		}
		return nil, fmt.Errorf("%w: %d, supported are 2 and 3", ErrVersion, f.Version)
	}
	tensors, err := d.u64()
	if err != nil {
		return nil, err
	}
	pairs, err := d.u64()
	if err != nil {
		return nil, err
	}
	if err := f.readMetadata(d, pairs); err != nil {
		return nil, err
	}
	if err := f.readTensors(d, tensors); err != nil {
		return nil, err
	}
	f.derive()
	return f, f.readTokenTexts(d)
}

func (f *File) readMetadata(d *reader, pairs uint64) error {
	seen := map[string]bool{}
	for i := range pairs {
		key, err := d.string(maxKeyBytes)
		if err != nil {
			return fmt.Errorf("metadata pair %d of %d: %w", i, pairs, err)
		}
		if seen[key] {
			return fmt.Errorf("%w: metadata key %q comes twice", ErrInvalidFile, key)
		}
		seen[key] = true
		code, err := d.u32()
		if err != nil {
			return fmt.Errorf("metadata %q: %w", key, err)
		}
		var value any
		if t := valueType(code); t == typeArray {
			value, err = d.array()
		} else {
			value, err = d.value(t)
		}
		if err != nil {
			return fmt.Errorf("metadata %q: %w", key, err)
		}
		f.Metadata = append(f.Metadata, KeyValue{key, value})
	}
	return nil
}

func (f *File) readTensors(d *reader, count uint64) error {
	alignment := uint64(defaultAlignment)
	if v, ok := f.Value("general.alignment"); ok {
		a, isUint32 := v.(uint32)
		if !isUint32 || a == 0 || a&(a-1) != 0 {
			return fmt.Errorf("%w: general.alignment is %v, not a power of two of type uint32", ErrInvalidFile, v)
		}
		alignment = uint64(a)
	}
	seen := map[string]bool{}
	for i := range count {
		t, err := readTensor(d)
		if err != nil {
			return fmt.Errorf("tensor %d of %d: %w", i, count, err)
		}
		if seen[t.Name] {
			return fmt.Errorf("%w: tensor %q comes twice", ErrInvalidFile, t.Name)
		}
		seen[t.Name] = true
		if t.Offset%alignment != 0 {
			return fmt.Errorf("%w: tensor %q at offset %d, alignment %d", ErrInvalidFile, t.Name, t.Offset, alignment)
		}
		f.Tensors = append(f.Tensors, t)
	}
	f.DataOffset = (d.pos + alignment - 1) / alignment * alignment
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if f.DataOffset > d.size || t.Offset > d.size-f.DataOffset || t.Size > d.size-f.DataOffset-t.Offset {
			return fmt.Errorf("%w: tensor %q needs %d bytes at %d, file has %d", ErrTruncated, t.Name, t.Size, f.DataOffset+t.Offset, d.size)
		}
		t.Offset += f.DataOffset
		n := t.Elements()
		if f.Parameters > math.MaxInt64-n {
			return fmt.Errorf("%w: more weights than can be counted", ErrInvalidFile)
		}
		f.Parameters += n
	}
	return nil
}

// readTensor reads one row of the table; the offset is still relative to the tensor data.
func readTensor(d *reader) (Tensor, error) {
	var t Tensor
	var err error
	if t.Name, err = d.string(maxTensorName); err != nil {
		return t, err
	}
	dims, err := d.u32()
	if err != nil {
		return t, err
	}
	if dims > maxDims {
		return t, fmt.Errorf("%w: %q has %d dimensions", ErrInvalidFile, t.Name, dims)
	}
	elements := uint64(1)
	for range dims {
		n, err := d.u64()
		if err != nil {
			return t, err
		}
		high, low := bits.Mul64(elements, n)
		if high != 0 || low > math.MaxInt64 {
			return t, fmt.Errorf("%w: %q has more elements than can be counted", ErrInvalidFile, t.Name)
		}
		elements = low
		t.Shape = append(t.Shape, n)
	}
	code, err := d.u32()
	if err != nil {
		return t, err
	}
	t.Type = TensorType(code)
	if perBlock, bytes := t.Type.Block(); perBlock > 0 {
		if dims > 0 && t.Shape[0]%perBlock != 0 || dims == 0 && perBlock != 1 {
			return t, fmt.Errorf("%w: rows of %q are no multiple of %d, the block of %s", ErrInvalidFile, t.Name, perBlock, t.Type)
		}
		high, low := bits.Mul64(elements/perBlock, bytes)
		if high != 0 {
			return t, fmt.Errorf("%w: %q is larger than any file", ErrInvalidFile, t.Name)
		}
		t.Size = low
	}
	t.Offset, err = d.u64()
	return t, err
}

// derive fills the named fields from metadata and tensors.
func (f *File) derive() {
	text := func(key string) string {
		v, _ := f.Value(key)
		s, _ := v.(string)
		return s
	}
	f.Architecture, f.Name = text("general.architecture"), text("general.name")
	arch := f.Architecture + "."
	f.ContextTokens = f.uint(arch + "context_length")
	f.Layers = f.uint(arch + "block_count")
	f.Embedding = f.uint(arch + "embedding_length")
	f.FeedForward = f.uint(arch + "feed_forward_length")
	f.Heads = f.uint(arch + "attention.head_count")
	f.KVHeads = f.uint(arch + "attention.head_count_kv")
	if f.KVHeads == 0 {
		f.KVHeads = f.Heads
	}
	f.KVBytes = f.kvBytes(arch)
	f.ChatTemplate = text("tokenizer.chat_template")
	f.Tokenizer = Tokenizer{
		Model: text("tokenizer.ggml.model"), PreTokenizer: text("tokenizer.ggml.pre"),
		Vocab: f.arrayLength("tokenizer.ggml.tokens"), Merges: f.arrayLength("tokenizer.ggml.merges"),
		BOS: f.id("tokenizer.ggml.bos_token_id"), EOS: f.id("tokenizer.ggml.eos_token_id"),
	}
	if v, ok := f.Value("tokenizer.ggml.add_bos_token"); ok {
		if b, ok := v.(bool); ok {
			f.Tokenizer.AddBOS = &b
		}
	}
	if _, ok := f.Value("general.file_type"); ok {
		f.Quantisation = fileTypeName(f.uint("general.file_type"))
	}
	if f.Quantisation == "" {
		f.Quantisation = f.commonType()
	}
}

// kvBytes is the size of keys and values of one token over all layers, two bytes per element.
func (f *File) kvBytes(arch string) uint64 {
	if f.Heads == 0 {
		return 0
	}
	key, value := f.uint(arch+"attention.key_length"), f.uint(arch+"attention.value_length")
	if key == 0 {
		key = f.Embedding / f.Heads
	}
	if value == 0 {
		value = f.Embedding / f.Heads
	}
	const limit = 1 << 15 // a factor above this is nonsense, and the product must not overflow
	if f.Layers > limit || f.KVHeads > limit || key > limit || value > limit {
		return 0
	}
	return 2 * f.Layers * f.KVHeads * (key + value)
}

// commonType is the storage type of most weights.
func (f *File) commonType() string {
	var best TensorType
	weights := map[TensorType]uint64{}
	for _, t := range f.Tensors {
		weights[t.Type] += t.Elements()
		if weights[t.Type] > weights[best] {
			best = t.Type
		}
	}
	if weights[best] == 0 {
		return ""
	}
	return best.String()
}

// uint is a non-negative whole number, 0 when the key is missing or something else.
func (f *File) uint(key string) uint64 {
	v, _ := f.Value(key)
	switch n := v.(type) {
	case uint8:
		return uint64(n)
	case uint16:
		return uint64(n)
	case uint32:
		return uint64(n)
	case uint64:
		return n
	case int8:
		return uint64(max(n, 0))
	case int16:
		return uint64(max(n, 0))
	case int32:
		return uint64(max(n, 0))
	case int64:
		return uint64(max(n, 0))
	}
	return 0
}

func (f *File) id(key string) *uint64 {
	if _, ok := f.Value(key); !ok {
		return nil
	}
	n := f.uint(key)
	return &n
}

func (f *File) arrayLength(key string) uint64 {
	v, _ := f.Value(key)
	a, _ := v.(Array)
	return a.Length
}

// readTokenTexts goes back to the token list for the texts of the special tokens.
func (f *File) readTokenTexts(d *reader) error {
	v, _ := f.Value("tokenizer.ggml.tokens")
	tokens, ok := v.(Array)
	if !ok || tokens.Type != typeString.String() {
		return nil
	}
	for _, want := range []struct {
		id   *uint64
		text *string
	}{{f.Tokenizer.BOS, &f.Tokenizer.BOSText}, {f.Tokenizer.EOS, &f.Tokenizer.EOSText}} {
		if want.id == nil || *want.id >= tokens.Length {
			continue
		}
		d.seek(tokens.offset)
		for range *want.id {
			if err := d.skipString(); err != nil {
				return err
			}
		}
		text, err := d.string(maxStringBytes)
		if err != nil {
			return err
		}
		*want.text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return nil
}

// EachString calls visit with every string of the metadata array key of the file at path, whose head is f, until visit returns an
// error, which it passes on. A key that is absent or no array of strings has no strings.
func EachString(path string, f *File, key string, visit func(string) error) error {
	v, _ := f.Value(key)
	a, ok := v.(Array)
	if !ok || a.Type != typeString.String() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	defer file.Close()
	d := newReader(file, f.SizeBytes)
	d.seek(a.offset)
	for range a.Length {
		s, err := d.string(maxStringBytes)
		if err != nil {
			return fmt.Errorf("%w: %s", err, path)
		}
		if err := visit(s); err != nil {
			return err
		}
	}
	return nil
}
