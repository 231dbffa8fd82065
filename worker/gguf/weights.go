package gguf

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
)

// tensor is one weight matrix or vector to be generated.
type tensor struct {
	name   string
	dims   []int // ggml order: dims[0] is contiguous
	kind   TensorType
	std    float64 // standard deviation of the elements
	mean   float32 // vectors only
	silent []bool  // rows that are exactly zero; nil for none
}

// elements is the number of weights.
func (t *tensor) elements() int64 {
	n := int64(1)
	for _, d := range t.dims {
		n *= int64(d)
	}
	return n
}

// rowBytes is the size of one contiguous row.
func (t *tensor) rowBytes() int64 {
	elements, bytes := t.kind.Block()
	return int64(t.dims[0]) / int64(elements) * int64(bytes)
}

// size is the tensor's length in the file, without padding.
func (t *tensor) size() int64 { return t.elements() / int64(t.dims[0]) * t.rowBytes() }

// fourUniforms is the standard deviation of the sum of four uniform 16-bit integers.
const fourUniforms = 2 * 18918.613

// normal draws from a bell curve of deviation 1, as the sum of four uniform integers. Only exactly rounded operations,
// and none that a compiler may fuse, so that every platform gets the same bits; [rand.Rand.NormFloat64] promises neither.
func normal(r *rand.Rand) float64 {
	u := r.Uint64()
	sum := int32(u&0xffff) + int32(u>>16&0xffff) + int32(u>>32&0xffff) + int32(u>>48)
	return (float64(sum) - 2*65535) / fourUniforms
}

// write generates the tensor row by row. Its values depend on seed and index only.
func (t *tensor) write(w io.Writer, seed, index uint64) error {
	r := rand.New(rand.NewPCG(seed, index))
	row := make([]byte, t.rowBytes())
	for i := range int(t.elements() / int64(t.dims[0])) {
		if t.silent != nil && t.silent[i] {
			clear(row)
		} else {
			t.fill(row, r)
		}
		if _, err := w.Write(row); err != nil {
			return err
		}
	}
	return nil
}

// fill generates one row in the tensor's storage format.
func (t *tensor) fill(row []byte, r *rand.Rand) {
	switch t.kind {
	case F32:
		for o := 0; o < len(row); o += 4 {
			scaled := float32(normal(r) * t.std)
			binary.LittleEndian.PutUint32(row[o:], math.Float32bits(t.mean+scaled))
		}
	case F16:
		for o := 0; o < len(row); o += 2 {
			binary.LittleEndian.PutUint16(row[o:], float16(float32(normal(r)*t.std)))
		}
	case Q8_0: // scale, then 32 int8
		for o := 0; o < len(row); o += 34 {
			block := row[o : o+34]
			binary.LittleEndian.PutUint16(block, t.blockScale(r, 73.6))
			for k := 2; k < 34; k += 8 {
				binary.LittleEndian.PutUint64(block[k:], r.Uint64())
			}
			for k := 2; k < 34; k++ {
				if block[k] == 0x80 { // quantisation never yields -128, and some kernels rely on that
					block[k] = 0x81
				}
			}
		}
	case Q4_0: // scale, then 32 nibbles that mean -8..7
		for o := 0; o < len(row); o += 18 {
			block := row[o : o+18]
			scale := t.blockScale(r, 4.61)
			if o/18%2 == 1 {
				scale |= 0x8000 // nibbles average -0.5; blocks of alternate sign cancel that
			}
			binary.LittleEndian.PutUint16(block, scale)
			binary.LittleEndian.PutUint64(block[2:], r.Uint64())
			binary.LittleEndian.PutUint64(block[10:], r.Uint64())
		}
	}
}

// blockScale gives blocks of uniform integers with deviation sigma the tensor's deviation, varied by a quarter either way.
func (t *tensor) blockScale(r *rand.Rand, sigma float64) uint16 {
	vary := 0.75 + float64(r.Uint32()>>8)*(0.5/(1<<24))
	return float16(float32(t.std / sigma * vary))
}

// float16 rounds to IEEE half precision, ties to even.
func float16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	exponent := int(bits>>23&0xff) - 127
	fraction := bits & 0x7fffff
	switch {
	case exponent == 128: // infinity and NaN
		if fraction != 0 {
			return sign | 0x7e00
		}
		return sign | 0x7c00
	case exponent > 15:
		return sign | 0x7c00
	case exponent >= -14:
		return sign | roundShift(uint32(exponent+15)<<23|fraction, 13)
	case exponent >= -25:
		return sign | roundShift(0x800000|fraction, uint(-exponent-1))
	}
	return sign
}

// roundShift is v >> n, rounded to nearest, ties to even. A carry runs into the exponent, which is what rounding up means there.
func roundShift(v uint32, n uint) uint16 {
	half := uint32(1) << (n - 1)
	out := v >> n
	if rest := v & (half<<1 - 1); rest > half || rest == half && out&1 == 1 {
		out++
	}
	return uint16(out)
}
