package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// entry is one metadata pair; value is a uint32, float32, bool, string, []string or []int32.
type entry struct {
	key   string
	value any
}

// header is the part of a file in front of its tensor data.
type header struct{ bytes.Buffer }

func (h *header) u32(v uint32) { h.Write(binary.LittleEndian.AppendUint32(nil, v)) }
func (h *header) u64(v uint64) { h.Write(binary.LittleEndian.AppendUint64(nil, v)) }

func (h *header) string(s string) {
	h.u64(uint64(len(s)))
	h.WriteString(s)
}

func (h *header) entry(e entry) error {
	h.string(e.key)
	switch v := e.value.(type) {
	case uint32:
		h.u32(uint32(typeUint32))
		h.u32(v)
	case float32:
		h.u32(uint32(typeFloat32))
		h.u32(math.Float32bits(v))
	case bool:
		h.u32(uint32(typeBool))
		if v {
			h.WriteByte(1)
		} else {
			h.WriteByte(0)
		}
	case string:
		h.u32(uint32(typeString))
		h.string(v)
	case []string:
		h.array(typeString, len(v))
		for _, s := range v {
			h.string(s)
		}
	case []int32:
		h.array(typeInt32, len(v))
		for _, n := range v {
			h.u32(uint32(n))
		}
	default:
		return fmt.Errorf("%w: metadata %s has a %T", ErrSpec, e.key, e.value)
	}
	return nil
}

func (h *header) array(of valueType, length int) {
	h.u32(uint32(typeArray))
	h.u32(uint32(of))
	h.u64(uint64(length))
}

// newHeader lays out metadata and tensor table, padded up to the tensor data.
func newHeader(entries []entry, tensors []*tensor) (*header, error) {
	h := &header{}
	h.WriteString(magic)
	h.u32(3)
	h.u64(uint64(len(tensors)))
	h.u64(uint64(len(entries)))
	for _, e := range entries {
		if err := h.entry(e); err != nil {
			return nil, err
		}
	}
	var offset int64
	for _, t := range tensors {
		h.string(t.name)
		h.u32(uint32(len(t.dims)))
		for _, d := range t.dims {
			h.u64(uint64(d))
		}
		h.u32(uint32(t.kind))
		h.u64(uint64(offset))
		offset += t.size() + padding(t.size())
	}
	h.Write(make([]byte, padding(int64(h.Len()))))
	return h, nil
}

// padding is how many bytes lead from offset n to the next aligned one.
func padding(n int64) int64 { return (defaultAlignment - n%defaultAlignment) % defaultAlignment }
