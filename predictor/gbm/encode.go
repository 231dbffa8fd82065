package gbm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrFormat is the error of bytes that are not an encoded model of this version.
var ErrFormat = errors.New("gbm: format of model")

// The form, little endian. The hash belongs to the artifact that holds it.
//
//	"cgbm" version:u16 features:u16 trees:u32 level:f64 base:f64
//	per feature: low:f32 high:f32 gain:f64 sign:i8
//	per tree:    nodes:u16, and per node skip:u16, then for a leaf (skip = 0) value:f64 rows:u32, else feature:u16 threshold:f32
//
// The children of node k are k+skip and the next; each node but the root is the child of exactly one.
const (
	magic      = "cgbm"
	version    = 2
	rangeBytes = 4 + 4 + 8 + 1
	leafBytes  = 2 + 8 + 4
	splitBytes = 2 + 2 + 4
	// The least that a tree takes: one leaf.
	treeBytes = 2 + leafBytes
)

// Encode appends the model's binary form to b. Equal models have equal forms.
func (m *Model) Encode(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, magic...)
	b = le.AppendUint16(b, version)
	b = le.AppendUint16(b, uint16(len(m.low)))
	b = le.AppendUint32(b, uint32(len(m.roots)))
	b = le.AppendUint64(b, math.Float64bits(m.level))
	b = le.AppendUint64(b, math.Float64bits(m.base))
	for f := range m.low {
		b = le.AppendUint32(b, math.Float32bits(m.low[f]))
		b = le.AppendUint32(b, math.Float32bits(m.high[f]))
		b = le.AppendUint64(b, math.Float64bits(m.gain[f]))
		b = append(b, byte(m.signs[f]))
	}
	for tree, root := range m.roots {
		end := m.end(tree)
		b = le.AppendUint16(b, uint16(end-root))
		for k, n := range m.nodes[root:end] {
			b = le.AppendUint16(b, n.skip)
			if n.skip == 0 {
				b = le.AppendUint64(b, math.Float64bits(m.values[root+k]))
				b = le.AppendUint32(b, m.rows[root+k])
			} else {
				b = le.AppendUint16(b, n.feature)
				b = le.AppendUint32(b, math.Float32bits(n.threshold))
			}
		}
	}
	return b
}

// Decode returns the model whose form b is, whole. It trusts nothing: what it returns predicts without panic and keeps its signs, and memory is
// at most a small multiple of len(b). Errors: ErrFormat.
func Decode(b []byte) (*Model, error) {
	r := reader{b: b}
	if string(r.take(len(magic))) != magic {
		return nil, fmt.Errorf("%w: not a model", ErrFormat)
	}
	if v := r.u16(); v != version {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrFormat, v, version)
	}
	features, trees := int(r.u16()), int(r.u32())
	m := &Model{level: r.f64(), base: r.f64()}
	switch {
	case r.short:
		return nil, fmt.Errorf("%w: cut short", ErrFormat)
	case features == 0 || features > maxFeatures || features*rangeBytes > len(r.b):
		return nil, fmt.Errorf("%w: %d features", ErrFormat, features)
	case trees > maxRounds || features*rangeBytes+trees*treeBytes > len(r.b):
		return nil, fmt.Errorf("%w: %d trees", ErrFormat, trees)
	case !(m.level > 0 && m.level < 1) || !finite(m.base):
		return nil, fmt.Errorf("%w: level %v, constant %v", ErrFormat, m.level, m.base)
	}
	m.low, m.high, m.gain, m.signs = make([]float32, features), make([]float32, features), make([]float64, features), make([]int8, features)
	for f := range features {
		low, high, gain, sign := r.f32(), r.f32(), r.f64(), int8(r.take(1)[0])
		if !finite(float64(low)) || !finite(float64(high)) || low > high || !finite(gain) || gain < 0 || sign < -1 || sign > 1 {
			return nil, fmt.Errorf("%w: feature %d in [%v, %v], gain %v, sign %d", ErrFormat, f, low, high, gain, sign)
		}
		m.low[f], m.high[f], m.gain[f], m.signs[f] = low, high, gain, sign
	}
	m.roots = make([]int, 0, trees)
	// A tree of n leaves has n−1 splits; this many nodes at most are still to come.
	nodes := 2 * len(r.b) / (leafBytes + splitBytes)
	m.nodes, m.values, m.rows = make([]node, 0, nodes), make([]float64, 0, nodes), make([]uint32, 0, nodes)
	bound := math.Abs(m.base)
	for i := range trees {
		largest, err := m.decodeTree(&r)
		if err == nil && !m.monotone(i) {
			err = errors.New("a leaf breaks the sign of a feature")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: tree %d: %w", ErrFormat, i, err)
		}
		bound += largest
	}
	if !finite(bound) {
		return nil, fmt.Errorf("%w: values add up to %v", ErrFormat, bound)
	}
	if len(r.b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrFormat, len(r.b))
	}
	m.clip()
	return m, nil
}

// decodeTree appends a tree and returns the largest of its values, without sign.
func (m *Model) decodeTree(r *reader) (float64, error) {
	n := int(r.u16())
	if n == 0 || n%2 == 0 || n > 2*maxLeaves-1 {
		return 0, fmt.Errorf("%d nodes", n)
	}
	root, largest := len(m.nodes), 0.0
	m.roots = append(m.roots, root)
	var child [2*maxLeaves - 1]bool
	child[0] = true
	for k := range n {
		if !child[k] {
			return 0, fmt.Errorf("node %d hangs on none", k)
		}
		skip := int(r.u16())
		if skip == 0 {
			value, rows := r.f64(), r.u32()
			if r.short || !finite(value) || rows == 0 || rows > maxRows {
				return 0, fmt.Errorf("leaf %d with value %v of %d rows", k, value, rows)
			}
			m.values[m.appendLeaf(int(rows))] = value
			largest = max(largest, math.Abs(value))
			continue
		}
		feature, threshold := r.u16(), r.f32()
		left := k + skip
		if r.short || left+1 >= n || child[left] || child[left+1] || int(feature) >= len(m.low) || !finite(float64(threshold)) {
			return 0, fmt.Errorf("node %d leads to %d by feature %d over %v", k, left, feature, threshold)
		}
		child[left], child[left+1] = true, true
		m.nodes[m.appendLeaf(0)] = node{threshold: threshold, feature: feature, skip: uint16(skip)}
	}
	return largest, nil
}

// reader takes values off the front of b. Past the end it gives zeros and is short.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.b, r.short = nil, true
		return make([]byte, n)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u16() uint16  { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32  { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) f32() float32 { return math.Float32frombits(r.u32()) }
func (r *reader) f64() float64 { return math.Float64frombits(binary.LittleEndian.Uint64(r.take(8))) }
