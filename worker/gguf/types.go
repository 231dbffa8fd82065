package gguf

import "fmt"

// magic opens every GGUF file.
const magic = "GGUF"

// defaultAlignment is where tensor data starts, in bytes, unless general.alignment says otherwise.
const defaultAlignment = 32

// TensorType is ggml's code for how the elements of a tensor are stored.
type TensorType uint32

// Tensor types that [Synth] writes. [Inspect] knows all that ggml stores in files.
const (
	F32  TensorType = 0
	F16  TensorType = 1
	Q4_0 TensorType = 2
	Q8_0 TensorType = 8
)

// layout is the storage of one tensor type: elements come in blocks.
type layout struct {
	name       string
	elements   uint64 // of a block
	blockBytes uint64
}

// layout looks the type up in ggml's table. Codes that ggml has retired are absent.
func (t TensorType) layout() (layout, bool) {
	switch t {
	case F32:
		return layout{"F32", 1, 4}, true
	case F16:
		return layout{"F16", 1, 2}, true
	case Q4_0:
		return layout{"Q4_0", 32, 18}, true
	case 3:
		return layout{"Q4_1", 32, 20}, true
	case 6:
		return layout{"Q5_0", 32, 22}, true
	case 7:
		return layout{"Q5_1", 32, 24}, true
	case Q8_0:
		return layout{"Q8_0", 32, 34}, true
	case 9:
		return layout{"Q8_1", 32, 36}, true
	case 10:
		return layout{"Q2_K", 256, 84}, true
	case 11:
		return layout{"Q3_K", 256, 110}, true
	case 12:
		return layout{"Q4_K", 256, 144}, true
	case 13:
		return layout{"Q5_K", 256, 176}, true
	case 14:
		return layout{"Q6_K", 256, 210}, true
	case 15:
		return layout{"Q8_K", 256, 292}, true
	case 16:
		return layout{"IQ2_XXS", 256, 66}, true
	case 17:
		return layout{"IQ2_XS", 256, 74}, true
	case 18:
		return layout{"IQ3_XXS", 256, 98}, true
	case 19:
		return layout{"IQ1_S", 256, 50}, true
	case 20:
		return layout{"IQ4_NL", 32, 18}, true
	case 21:
		return layout{"IQ3_S", 256, 110}, true
	case 22:
		return layout{"IQ2_S", 256, 82}, true
	case 23:
		return layout{"IQ4_XS", 256, 136}, true
	case 24:
		return layout{"I8", 1, 1}, true
	case 25:
		return layout{"I16", 1, 2}, true
	case 26:
		return layout{"I32", 1, 4}, true
	case 27:
		return layout{"I64", 1, 8}, true
	case 28:
		return layout{"F64", 1, 8}, true
	case 29:
		return layout{"IQ1_M", 256, 56}, true
	case 30:
		return layout{"BF16", 1, 2}, true
	case 34:
		return layout{"TQ1_0", 256, 54}, true
	case 35:
		return layout{"TQ2_0", 256, 66}, true
	case 39:
		return layout{"MXFP4", 32, 17}, true
	}
	return layout{}, false
}

// String is ggml's name of the type, or "type_N" for a code that is not known here.
func (t TensorType) String() string {
	if l, ok := t.layout(); ok {
		return l.name
	}
	return fmt.Sprintf("type_%d", uint32(t))
}

// MarshalText gives the name, for JSON.
func (t TensorType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Block is the storage unit of the type: elements and bytes of a block, both 0 for an unknown type.
func (t TensorType) Block() (elements, bytes uint64) {
	l, _ := t.layout()
	return l.elements, l.blockBytes
}

// valueType is GGUF's code for the type of a metadata value.
type valueType uint32

const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// width is the size of a value in bytes, 0 for strings and arrays, whose size is in the file.
func (t valueType) width() uint64 {
	switch t {
	case typeUint8, typeInt8, typeBool:
		return 1
	case typeUint16, typeInt16:
		return 2
	case typeUint32, typeInt32, typeFloat32:
		return 4
	case typeUint64, typeInt64, typeFloat64:
		return 8
	}
	return 0
}

func (t valueType) String() string {
	names := [...]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type_%d", uint32(t))
}

// fileTypeName is llama.cpp's name of general.file_type, "" for a code that is not known here.
func fileTypeName(code uint64) string {
	names := map[uint64]string{
		0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
		14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
		23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M",
		32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
	}
	return names[code]
}
