package gbm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/cadence-slo/cadence/predictor/gbm"
	"pgregory.net/rapid"
)

func TestEncodeAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		features := rapid.IntRange(1, 5).Draw(t, "features")
		d := randomData(rng, rapid.IntRange(1, 200).Draw(t, "rows"), features, false)
		m, _, err := gbm.Train(d, gbm.Data{}, randomParams(t, features), nil)
		if err != nil {
			t.Fatal(err)
		}
		encoded := m.Encode([]byte("x"))[1:]
		back, err := gbm.Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back.Encode(nil), encoded) {
			t.Fatal("encoded again, it differs")
		}
		if back.Level() != m.Level() || back.Features() != features || back.Trees() != m.Trees() ||
			!reflect.DeepEqual(back.Importance(), m.Importance()) {
			t.Fatal("level, features, trees or importance differ")
		}
		for f := range features {
			if back.Sign(f) != m.Sign(f) {
				t.Fatalf("the sign of feature %d is %d, was %d", f, back.Sign(f), m.Sign(f))
			}
		}
		for row := range d.Rows() {
			x := rowOf(d, row)
			if back.Predict(x) != m.Predict(x) || back.Occupancy(x) != m.Occupancy(x) {
				t.Fatalf("row %d: %v of %v, was %v of %v", row, back.Predict(x), back.Occupancy(x), m.Predict(x), m.Occupancy(x))
			}
		}
	})
}

// small returns the form of a model with one feature, and two trees of two leaves: a header of 28 bytes, a range of 17, and
// trees of 38, each a count, a split of 8 and two leaves of 14.
func small(t testing.TB) []byte {
	d := gbm.Data{Columns: [][]float32{{1, 2, 3, 4}}, Labels: []float64{1, 2, 3, 4}}
	p := gbm.DefaultParams(0.5)
	p.Rounds, p.Leaves, p.MinRows, p.Monotone = 2, 2, 1, []int8{1}
	m, _, err := gbm.Train(d, gbm.Data{}, p, nil)
	if err != nil || m.Trees() != 2 {
		t.Fatal(err)
	}
	b := m.Encode(nil)
	if len(b) != 28+17+2*38 {
		t.Fatalf("%d bytes", len(b))
	}
	return b
}

func TestDecodeRefuses(t *testing.T) {
	good := small(t)
	if _, err := gbm.Decode(good); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := gbm.Decode(good[:n]); !errors.Is(err, gbm.ErrFormat) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	const ranges, tree, left, right = 28, 45, 55, 69
	nan32 := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.NaN())))
	inf64 := binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Inf(1)))
	huge := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.5e308))
	for name, c := range map[string]struct {
		at   int
		with []byte
	}{
		"magic":                 {0, []byte{'C'}},
		"version":               {4, []byte{1}},
		"no feature":            {6, []byte{0}},
		"many features":         {6, []byte{0xff, 0xff}},
		"many trees":            {8, []byte{0xff, 0xff, 0xff, 0xff}},
		"a tree too many":       {8, []byte{3}},
		"a tree too few":        {8, []byte{1}},
		"level":                 {12, inf64},
		"constant":              {20, inf64},
		"range":                 {ranges, nan32},
		"range upside down":     {ranges, []byte{0, 0, 0x80, 0x42}},
		"gain":                  {ranges + 8, inf64},
		"sign":                  {ranges + 16, []byte{2}},
		"other sign":            {ranges + 16, []byte{0xff}},
		"no node":               {tree, []byte{0}},
		"two nodes":             {tree, []byte{2}},
		"a node too many":       {tree, []byte{5}},
		"children out of reach": {tree + 2, []byte{2}},
		"unknown feature":       {tree + 4, []byte{1}},
		"threshold":             {tree + 6, nan32},
		"value":                 {left + 2, inf64},
		"no rows":               {left + 10, []byte{0, 0, 0, 0}},
		"a leaf that splits":    {right, []byte{1}},
		"second tree":           {tree + 38, []byte{1}},
	} {
		bad := bytes.Clone(good)
		copy(bad[c.at:], c.with)
		if _, err := gbm.Decode(bad); !errors.Is(err, gbm.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := gbm.Decode(append(bytes.Clone(good), 0)); !errors.Is(err, gbm.ErrFormat) {
		t.Errorf("a byte too many: %v", err)
	}
	bad := bytes.Clone(good)
	bad[ranges+16] = 0 // a sign would forbid it
	copy(bad[left+2:], huge)
	if _, err := gbm.Decode(bad); err != nil {
		t.Errorf("one huge value: %v", err)
	}
	copy(bad[left+2+38:], huge)
	if _, err := gbm.Decode(bad); !errors.Is(err, gbm.ErrFormat) {
		t.Errorf("values that add up to infinity: %v", err)
	}
}

// FuzzDecode: whatever decodes has one form, and predicts finite values.
//
//	go test -run ^$ -fuzz FuzzDecode -fuzztime 60s ./predictor/gbm
func FuzzDecode(f *testing.F) {
	f.Add(small(f))
	f.Add(small(f)[:45])
	d, _ := generate("friedman", 1, 10, 100)
	p := gbm.DefaultParams(0.9)
	p.Rounds, p.Leaves, p.MinRows = 3, 5, 3
	m, _, err := gbm.Train(d, gbm.Data{}, p, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := gbm.Decode(b)
		if err != nil {
			if !errors.Is(err, gbm.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(m.Encode(nil), b) {
			t.Fatal("encoded again, it differs")
		}
		x := make([]float32, m.Features())
		for _, v := range []float32{0, 1e30, -1e30, float32(math.NaN()), float32(math.Inf(1))} {
			for i := range x {
				x[i] = v
			}
			if got := m.Predict(x); math.IsNaN(got) || math.IsInf(got, 0) {
				t.Fatalf("predicts %v at %v", got, v)
			}
			if got := m.Occupancy(x); !(got >= 1) {
				t.Fatalf("occupancy %v at %v", got, v)
			}
			m.Supported(x, 2)
		}
	})
}
