package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Errors of [Inspect]; each comes wrapped with what was found where.
var (
	ErrNotGGUF     = errors.New("gguf: not a GGUF file")
	ErrVersion     = errors.New("gguf: unsupported GGUF version")
	ErrTruncated   = errors.New("gguf: file is truncated")
	ErrInvalidFile = errors.New("gguf: invalid GGUF file")
)

// Bounds on what is kept of one file; well above what real models hold.
const (
	maxKeyBytes    = 1<<16 - 1 // the format's own limit
	maxStringBytes = 64 << 20
	maxArrayHead   = 8 // elements of an array that are kept
	maxDims        = 4
	maxTensorName  = 1 << 10
)

// reader decodes little-endian values and never trusts a length: whatever is about to be read or skipped must fit in the file.
type reader struct {
	file io.ReaderAt
	size uint64 // of the file
	pos  uint64 // of the next byte
	buf  *bufio.Reader
}

func newReader(file io.ReaderAt, size int64) *reader {
	r := &reader{file: file, size: uint64(size)}
	r.seek(0)
	return r
}

// seek continues at pos, which lies inside the file.
func (r *reader) seek(pos uint64) {
	section := io.NewSectionReader(r.file, int64(pos), int64(r.size-pos))
	if r.buf == nil {
		r.buf = bufio.NewReaderSize(section, 64<<10)
	} else {
		r.buf.Reset(section)
	}
	r.pos = pos
}

// need checks that n more bytes exist.
func (r *reader) need(n uint64) error {
	if n > r.size-r.pos {
		return fmt.Errorf("%w: %d bytes needed at offset %d of %d", ErrTruncated, n, r.pos, r.size)
	}
	return nil
}

func (r *reader) read(p []byte) error {
	if err := r.need(uint64(len(p))); err != nil {
		return err
	}
	n, err := io.ReadFull(r.buf, p)
	r.pos += uint64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the file shrank under us
		return fmt.Errorf("%w: ends at offset %d", ErrTruncated, r.pos)
	}
	return err
}

func (r *reader) skip(n uint64) error {
	if err := r.need(n); err != nil {
		return err
	}
	if n > uint64(r.buf.Buffered()) {
		r.seek(r.pos + n)
		return nil
	}
	_, err := r.buf.Discard(int(n))
	r.pos += n
	return err
}

func (r *reader) u32() (uint32, error) {
	var b [4]byte
	err := r.read(b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

func (r *reader) u64() (uint64, error) {
	var b [8]byte
	err := r.read(b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// string reads a string of at most limit bytes.
func (r *reader) string(limit uint64) (string, error) {
	n, err := r.u64()
	if err != nil {
		return "", err
	}
	if err := r.need(n); err != nil {
		return "", err
	}
	if n > limit {
		return "", fmt.Errorf("%w: string of %d bytes at offset %d, limit %d", ErrInvalidFile, n, r.pos, limit)
	}
	b := make([]byte, n)
	err = r.read(b)
	return string(b), err
}

func (r *reader) skipString() error {
	n, err := r.u64()
	if err != nil {
		return err
	}
	return r.skip(n)
}

// value reads one value that is not an array. Floats that JSON cannot carry become text.
func (r *reader) value(t valueType) (any, error) {
	if t == typeString {
		return r.string(maxStringBytes)
	}
	width := t.width()
	if width == 0 {
		return nil, fmt.Errorf("%w: value of type %s at offset %d", ErrInvalidFile, t, r.pos)
	}
	var b [8]byte
	if err := r.read(b[:width]); err != nil {
		return nil, err
	}
	bits := binary.LittleEndian.Uint64(b[:])
	switch t {
	case typeUint8:
		return uint8(bits), nil
	case typeInt8:
		return int8(bits), nil
	case typeUint16:
		return uint16(bits), nil
	case typeInt16:
		return int16(bits), nil
	case typeUint32:
		return uint32(bits), nil
	case typeInt32:
		return int32(bits), nil
	case typeFloat32:
		if f := math.Float32frombits(uint32(bits)); finite(float64(f)) {
			return f, nil
		}
		return fmt.Sprint(math.Float32frombits(uint32(bits))), nil
	case typeBool:
		return bits != 0, nil
	case typeUint64:
		return bits, nil
	case typeInt64:
		return int64(bits), nil
	}
	if f := math.Float64frombits(bits); finite(f) {
		return f, nil
	}
	return fmt.Sprint(math.Float64frombits(bits)), nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// array reads an array's header and first elements and skips the rest.
func (r *reader) array() (Array, error) {
	code, err := r.u32()
	if err != nil {
		return Array{}, err
	}
	of := valueType(code)
	n, err := r.u64()
	if err != nil {
		return Array{}, err
	}
	least := of.width()
	if of == typeString {
		least = 8
	}
	if least == 0 {
		return Array{}, fmt.Errorf("%w: array of %s at offset %d", ErrInvalidFile, of, r.pos)
	}
	if n > (r.size-r.pos)/least {
		return Array{}, fmt.Errorf("%w: array of %d %s at offset %d of %d", ErrTruncated, n, of, r.pos, r.size)
	}
	a := Array{Type: of.String(), Length: n, offset: r.pos}
	for range min(n, maxArrayHead) {
		v, err := r.value(of)
		if err != nil {
			return Array{}, err
		}
		a.Head = append(a.Head, v)
	}
	rest := n - min(n, maxArrayHead)
	if of != typeString {
		return a, r.skip(rest * of.width())
	}
	for range rest {
		if err := r.skipString(); err != nil {
			return Array{}, err
		}
	}
	return a, nil
}
