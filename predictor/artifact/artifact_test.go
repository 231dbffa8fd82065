package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/gbm"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/profile"
	"pgregory.net/rapid"
)

type fataler interface{ Fatal(...any) }

// sample draws an artifact of so many features, groups and classes of lengths.
func sample(t fataler, seed uint64, features, groups, classes int) *artifact.Artifact {
	rng := rand.New(rand.NewPCG(seed, 0))
	d := gbm.Data{Columns: make([][]float32, features)}
	for range 60 {
		label := 0.0
		for f := range d.Columns {
			x := rng.NormFloat64()
			d.Columns[f] = append(d.Columns[f], float32(x))
			label += x
		}
		d.Labels = append(d.Labels, label)
	}
	params := gbm.DefaultParams(0.5)
	params.Rounds, params.Leaves, params.Monotone = 3, 3, feature.Signs()[:features]
	m, _, err := gbm.Train(d, gbm.Data{}, params, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	arm := func() conformal.State {
		a, err := conformal.NewSFOGD(0.1, rng.NormFloat64(), conformal.DefaultSFOGD(0.1), 8, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rng.IntN(12) {
			score := rng.NormFloat64()
			if i%5 == 4 {
				score = math.Inf(1)
			}
			if err := a.Observe(conformal.Row{ID: rng.Uint64(), Score: score}); err != nil {
				t.Fatal(err)
			}
		}
		return a.Export()
	}
	day := time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)
	a := &artifact.Artifact{Model: m, Header: artifact.Header{Created: day, Code: "v1.2.3", Backend: "llamacpp/b6a1f0c2", Profile: p,
		Features: feature.Table()[:features], From: day.Add(-time.Hour), To: day, Strata: []artifact.Stratum{{Name: "idle", Seen: 100, Kept: 60}},
		Coverage: []artifact.Cell{
			{Fold: 1, Alpha: 0.1, Coverage: conformal.Coverage{Hits: 90, Misses: 9, Censored: 1}, Low: 0.85, High: 0.95, MeanBound: 2.5, MedianBound: 2},
			{Fold: 1, Group: &conformal.Group{Class: 1, Decile: 9}, Alpha: 0.1, High: 1},
		}}}
	a.Calibration = artifact.Calibration{MinSupport: 5, Deciles: conformal.Deciles{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 3}, Physics: arm(),
		Supported: conformal.GroupsState{All: arm()}}
	for g := range groups {
		a.Calibration.Supported.Groups = append(a.Calibration.Supported.Groups,
			conformal.GroupState{Group: conformal.Group{Class: uint16(g / 10), Decile: uint8(g % 10)}, Arm: arm()})
	}
	l := length.New(classes, 100)
	for range 50 * classes {
		l.Observe(int32(rng.IntN(classes)), int32(1+rng.IntN(300)), rng.IntN(9) == 0)
	}
	a.Lengths = l.State()
	return a
}

func encode(t fataler, a *artifact.Artifact) []byte {
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// seal puts the right hash behind a body.
func seal(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

func TestEncodeAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		features, classes := rapid.IntRange(1, 5).Draw(t, "features"), rapid.IntRange(0, 3).Draw(t, "classes")
		a := sample(t, rapid.Uint64().Draw(t, "seed"), features, rapid.IntRange(0, 15).Draw(t, "groups"), classes)
		b := encode(t, a)
		back, err := artifact.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encode(t, back), b) {
			t.Fatal("encoded again, it differs")
		}
		if !reflect.DeepEqual(back.Header, a.Header) || !reflect.DeepEqual(back.Calibration.Supported.All, a.Calibration.Supported.All) ||
			!reflect.DeepEqual(back.Calibration.Physics, a.Calibration.Physics) || !reflect.DeepEqual(back.Lengths.Classes, a.Lengths.Classes) {
			t.Fatalf("header, calibration or lengths differ:\n%+v\n%+v", back, a)
		}
		x := make([]float32, features)
		for i := range x {
			x[i] = rapid.Float32Range(-3, 3).Draw(t, "x")
		}
		if back.Model.Predict(x) != a.Model.Predict(x) {
			t.Fatal("the model differs")
		}
		l, err := length.Restore(back.Lengths)
		if err != nil {
			t.Fatal(err)
		}
		was, err := length.Restore(a.Lengths)
		if err != nil {
			t.Fatal(err)
		}
		if l.Quantile(0, 10, 200, 0.7) != was.Quantile(0, 10, 200, 0.7) {
			t.Fatal("the lengths differ")
		}
	})
}

// One wrong bit anywhere is seen, and so is a file that was cut, or has more behind it.
func TestDamageIsSeen(t *testing.T) {
	b := encode(t, sample(t, 1, 3, 2, 1))
	refused := func(what string, at int, b []byte, want error) {
		a, err := artifact.Decode(b)
		if a != nil || !errors.Is(err, want) {
			t.Errorf("%s at %d: %v, want %v", what, at, err, want)
		}
	}
	for i := range b {
		want := artifact.ErrHash
		if i < 10 { // magic and version
			want = artifact.ErrFormat
		}
		bad := bytes.Clone(b)
		bad[i] ^= 1 << (i % 8)
		refused("a wrong bit", i, bad, want)
	}
	for n := 0; n < len(b); n += 1 + n/64 {
		if _, err := artifact.Decode(b[:n]); err == nil {
			t.Errorf("cut to %d bytes it is taken", n)
		}
	}
	refused("a byte more", len(b), append(bytes.Clone(b), 0), artifact.ErrHash)
}

// Damage below a right hash, in any section, is an error or leaves an artifact that is whole.
func TestDamageBelowTheHash(t *testing.T) {
	b := encode(t, sample(t, 2, 2, 1, 1))
	body := b[:len(b)-sha256.Size]
	refused := [4]int{}
	at := func(i int) int { // section
		end := 26
		for s := range refused {
			if end += int(binary.LittleEndian.Uint32(body[10+4*s:])); i < end {
				return s
			}
		}
		return 3
	}
	for i := range body {
		bad := bytes.Clone(body)
		bad[i] ^= [...]byte{1, 0x80, 0xff}[i%3]
		a, err := artifact.Decode(seal(bad))
		switch {
		case err == nil:
			encode(t, a)
		case i >= 26:
			refused[at(i)]++
		case !errors.Is(err, artifact.ErrFormat):
			t.Errorf("byte %d of the prefix: %v", i, err)
		}
	}
	for s, n := range refused {
		if n == 0 {
			t.Errorf("no damage to section %d was refused", s)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*artifact.Artifact)
		names  string
	}{
		"no backend":         {func(a *artifact.Artifact) { a.Header.Backend = "" }, "backend_fingerprint"},
		"code too long":      {func(a *artifact.Artifact) { a.Header.Code = strings.Repeat("x", 257) }, "code_version"},
		"bytes that are not": {func(a *artifact.Artifact) { a.Header.Backend = "\xff" }, "backend_fingerprint"},
		"never created":      {func(a *artifact.Artifact) { a.Header.Created = time.Time{} }, "created"},
		"local time":         {func(a *artifact.Artifact) { a.Header.From = a.Header.From.In(time.FixedZone("x", 3600)) }, "training_from"},
		"window backwards":   {func(a *artifact.Artifact) { a.Header.To = a.Header.From.Add(-1) }, "training_to"},
		"no profile":         {func(a *artifact.Artifact) { a.Header.Profile = nil }, "engine_profile"},
		"profile":            {func(a *artifact.Artifact) { a.Header.Profile.Cost.Base = -1 }, "step.base_ns"},
		"feature missing":    {func(a *artifact.Artifact) { a.Header.Features = a.Header.Features[:2] }, "features"},
		"feature twice":      {func(a *artifact.Artifact) { a.Header.Features[1] = a.Header.Features[0] }, "features[1].name"},
		"sign":               {func(a *artifact.Artifact) { a.Header.Features[2].Sign = 2 }, "features[2].sign"},
		"sign of the model":  {func(a *artifact.Artifact) { a.Header.Features[2].Sign = 0 }, "features[2].sign"},
		"kept more":          {func(a *artifact.Artifact) { a.Header.Strata[0].Kept = 101 }, "strata[0].kept"},
		"share above 1":      {func(a *artifact.Artifact) { a.Header.Coverage[0].High = 1.5 }, "coverage[0]"},
		"decile":             {func(a *artifact.Artifact) { a.Header.Coverage[1].Group.Decile = 10 }, "coverage[1]"},
		"bound NaN":          {func(a *artifact.Artifact) { a.Header.Coverage[0].MeanBound = math.NaN() }, "coverage[0]"},
		"no model":           {func(a *artifact.Artifact) { a.Model = nil }, "model"},
		"support":            {func(a *artifact.Artifact) { a.Calibration.MinSupport = math.Inf(1) }, "min_support_rows"},
		"deciles":            {func(a *artifact.Artifact) { a.Calibration.Deciles[3] = -1 }, "load_deciles[3]"},
		"deciles infinite":   {func(a *artifact.Artifact) { a.Calibration.Deciles[8] = math.Inf(1) }, "load_deciles[8]"},
		"levels":             {func(a *artifact.Artifact) { a.Calibration.Physics.Alpha = 0.2 }, "alpha"},
		"group order":        {func(a *artifact.Artifact) { a.Calibration.Supported.Groups[1].Group.Decile = 0 }, "ascending"},
		"group decile":       {func(a *artifact.Artifact) { a.Calibration.Supported.Groups[1].Group.Decile = 10 }, "decile"},
		"window":             {func(a *artifact.Artifact) { a.Calibration.Physics.Size = 1 << 30 }, "window"},
		"windows":            {func(a *artifact.Artifact) { a.Calibration.Physics.Size = 1<<18 - 16 }, "windows"},
		"kind":               {func(a *artifact.Artifact) { a.Calibration.Supported.Groups[0].Arm.Kind = "none" }, "kind"},
		"lengths":            {func(a *artifact.Artifact) { a.Lengths.Classes[0].Ended[2] = -1 }, "class 0"},
		"half-life":          {func(a *artifact.Artifact) { a.Lengths.HalfLife = math.NaN() }, "half-life"},
	} {
		a := sample(t, 3, 3, 2, 1)
		c.change(a)
		if b, err := a.Encode(); b != nil || !errors.Is(err, artifact.ErrInvalid) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v, want %v and %q", name, err, artifact.ErrInvalid, c.names)
		}
	}
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	b := encode(t, sample(t, 4, 1, 0, 0))
	for name, c := range map[string]struct {
		change func(body []byte) []byte
		want   error
	}{
		"version":     {func(b []byte) []byte { b[8]++; return b }, artifact.ErrFormat},
		"unknown key": {func(b []byte) []byte { return bytes.Replace(b, []byte(`"created"`), []byte(`"CREATOR"`), 1) }, artifact.ErrFormat},
		"schema": {func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"schema_version":1`), []byte(`"schema_version":2`), 1)
		}, artifact.ErrInvalid},
		"a section longer": {func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[22:], binary.LittleEndian.Uint32(b[22:])+1)
			return b
		}, artifact.ErrFormat},
		"a byte between": {func(b []byte) []byte { return append(b, 0) }, artifact.ErrFormat},
	} {
		body := c.change(bytes.Clone(b[:len(b)-sha256.Size]))
		if a, err := artifact.Decode(seal(body)); a != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestCompatible(t *testing.T) {
	h := &sample(t, 5, 3, 0, 0).Header
	if err := h.Compatible("llamacpp/b6a1f0c2", feature.Table()[:3]); err != nil {
		t.Error(err)
	}
	other := feature.Table()[:3]
	other[1].Name = "other_tokens"
	sign := feature.Table()[:3]
	sign[2].Sign = 0
	for _, c := range []struct {
		backend  string
		features []feature.Info
		names    []string
	}{
		{"vllm/1", feature.Table()[:3], []string{"llamacpp/b6a1f0c2", "vllm/1"}},
		{h.Backend, feature.Table(), []string{"3 features"}},
		{h.Backend, other, []string{"feature 1", "cached_tokens", "other_tokens"}},
		{h.Backend, sign, []string{"feature 2", "sign +1", "sign +0"}},
	} {
		err := h.Compatible(c.backend, c.features)
		if !errors.Is(err, artifact.ErrIncompatible) {
			t.Errorf("%v: %v", c.names, err)
			continue
		}
		for _, n := range c.names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("%v does not name %q", err, n)
			}
		}
	}
}

// FuzzDecode: no bytes make Decode panic, whether or not their hash is right; what it takes is encoded and read again as it was.
//
//	go test -run ^$ -fuzz FuzzDecode -fuzztime 1m -fuzzminimizetime 0x ./predictor/artifact
func FuzzDecode(f *testing.F) {
	for _, a := range []*artifact.Artifact{sample(f, 6, 1, 0, 0), sample(f, 7, 3, 2, 1)} {
		b := encode(f, a)
		f.Add(b[:len(b)-sha256.Size])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = artifact.Decode(body)
		a, err := artifact.Decode(seal(body))
		if err != nil {
			if a != nil {
				t.Fatal("an artifact and an error")
			}
			return
		}
		b := encode(t, a)
		back, err := artifact.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encode(t, back), b) {
			t.Fatal("encoded again, it differs")
		}
		if v := a.Model.Predict(make([]float32, a.Model.Features())); v-v != 0 {
			t.Fatalf("it predicts %v", v)
		}
	})
}
