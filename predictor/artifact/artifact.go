package artifact

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/gbm"
	"github.com/cadence-slo/cadence/predictor/length"
)

// Artifact is a model with all that it needs. It does not change once it is made.
type Artifact struct {
	Header Header
	// Model is of the residual log(latency / simulated latency), with Header.Features.
	Model       *gbm.Model
	Calibration Calibration
	// Lengths of answers by class; see length.Restore.
	Lengths length.State
}

// Calibration is the state of the bounds. Scores are residuals less what the model says of them; for rows that the model does not
// support, they are the residuals.
type Calibration struct {
	// MinSupport is how many training rows a leaf must stand for, on average, for a row to be supported; see gbm.Model.Supported. ≥ 0.
	MinSupport float64 `json:"min_support_rows"`
	// Deciles cut feature.Load.
	Deciles conformal.Deciles `json:"load_deciles"`
	// Supported is by group, and together; Physics of what the model does not support. All are at one level.
	Supported conformal.GroupsState `json:"supported"`
	Physics   conformal.State       `json:"physics"`
}

const (
	magic    = "cdncemdl"
	sections = 4
	prefix   = len(magic) + 2 + sections*4
	// Least and Most are how long a file can be, in bytes.
	Least = prefix + sha256.Size
	Most  = 64 << 20
	// maxRows of calibration, in all arms together: windows are made at once, whatever they hold.
	maxRows    = 1 << 18
	maxGroups  = 4096
	maxClasses = 1 << 16
	classBytes = 4 * length.Bins * 8
)

// Encode returns the file, or why the artifact is not valid: ErrInvalid. It sets Header.Schema. Equal artifacts have equal files.
func (a *Artifact) Encode() ([]byte, error) {
	a.Header.Schema = Version
	if err := a.validate(); err != nil {
		return nil, err
	}
	header, err := json.Marshal(&a.Header)
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrInvalid, err)
	}
	calibration, err := json.Marshal(&a.Calibration)
	if err != nil {
		return nil, fmt.Errorf("%w: calibration: %w", ErrInvalid, err)
	}
	parts := [sections][]byte{header, a.Model.Encode(nil), calibration, encodeLengths(&a.Lengths)}
	b := append([]byte(nil), magic...)
	b = binary.LittleEndian.AppendUint16(b, Version)
	for _, p := range parts {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
	}
	for _, p := range parts {
		b = append(b, p...)
	}
	if len(b) > Most-sha256.Size {
		return nil, fmt.Errorf("%w: the file has %d bytes, allowed: %d", ErrInvalid, len(b), Most)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// Digest returns the SHA-256 of a file in hexadecimal: its name in a store.
func Digest(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}

// Decode reads a file, whole. ErrFormat if it is not one of this version, ErrHash if it is damaged, ErrInvalid if its parts are not
// valid or do not fit together.
func Decode(b []byte) (*Artifact, error) {
	if len(b) < Least || len(b) > Most {
		return nil, fmt.Errorf("%w: %d bytes, allowed: %d to %d", ErrFormat, len(b), Least, Most)
	}
	if string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: not an artifact", ErrFormat)
	}
	if v := binary.LittleEndian.Uint16(b[len(magic):]); v != Version {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrFormat, v, Version)
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, fmt.Errorf("%w: hash is %x, of the content %x", ErrHash, sum, got)
	}
	var parts [sections][]byte
	rest := body[prefix:]
	for i := range parts {
		n := binary.LittleEndian.Uint32(b[len(magic)+2+4*i:])
		if uint64(n) > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: section %d has %d bytes, %d are left", ErrFormat, i, n, len(rest))
		}
		parts[i], rest = rest[:n], rest[n:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", ErrFormat, len(rest))
	}
	a := &Artifact{}
	if err := decodeJSON(parts[0], &a.Header); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	var err error
	if a.Model, err = gbm.Decode(parts[1]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err := decodeJSON(parts[2], &a.Calibration); err != nil {
		return nil, fmt.Errorf("%w: calibration: %w", ErrFormat, err)
	}
	if a.Lengths, err = decodeLengths(parts[3]); err != nil {
		return nil, err
	}
	if err := a.validate(); err != nil {
		return nil, err
	}
	return a, nil
}

// decodeJSON takes one value without keys that are not known.
func decodeJSON(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more than one value")
	}
	return nil
}

// validate returns ErrInvalid for the first part that is out of range, or that does not fit another.
func (a *Artifact) validate() error {
	if err := a.Header.validate(); err != nil {
		return err
	}
	if a.Model == nil {
		return fmt.Errorf("%w: no model", ErrInvalid)
	}
	if n, m := len(a.Header.Features), a.Model.Features(); n != m {
		return fmt.Errorf("%w: features are %d, the model has %d", ErrInvalid, n, m)
	}
	for i, f := range a.Header.Features {
		if s := a.Model.Sign(i); s != f.Sign {
			return fmt.Errorf("%w: features[%d].sign is %+d, the model keeps %+d", ErrInvalid, i, f.Sign, s)
		}
	}
	if err := a.Calibration.validate(); err != nil {
		return err
	}
	if n := len(a.Lengths.Classes); n > maxClasses {
		return fmt.Errorf("%w: lengths of %d classes, allowed: %d", ErrInvalid, n, maxClasses)
	}
	if _, err := length.Restore(a.Lengths); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func (c *Calibration) validate() error {
	if !(c.MinSupport >= 0 && c.MinSupport <= math.MaxInt32) {
		return fmt.Errorf("%w: min_support_rows is %v, allowed: 0 and more", ErrInvalid, c.MinSupport)
	}
	for i, d := range c.Deciles {
		if !(math.Abs(d) <= math.MaxFloat64) || i > 0 && d < c.Deciles[i-1] {
			return fmt.Errorf("%w: load_deciles[%d] is %v, allowed: finite, ascending", ErrInvalid, i, d)
		}
	}
	groups := c.Supported.Groups
	if len(groups) > maxGroups {
		return fmt.Errorf("%w: calibration of %d groups, allowed: %d", ErrInvalid, len(groups), maxGroups)
	}
	// Sizes first: windows are made when arms are imported.
	rows := 0
	for i := -2; i < len(groups); i++ {
		s := &c.Physics
		if i >= 0 {
			s = &groups[i].Arm
		} else if i == -1 {
			s = &c.Supported.All
		}
		if s.Size < 1 || s.Size > maxRows {
			return fmt.Errorf("%w: a window of calibration has %d rows, allowed: 1 to %d", ErrInvalid, s.Size, maxRows)
		}
		if rows += s.Size; rows > maxRows {
			return fmt.Errorf("%w: windows of calibration have %d rows and more, allowed: %d", ErrInvalid, rows, maxRows)
		}
		if s.Alpha != c.Supported.All.Alpha {
			return fmt.Errorf("%w: calibration at alpha %v and %v", ErrInvalid, c.Supported.All.Alpha, s.Alpha)
		}
	}
	for i, g := range groups {
		if g.Group.Decile > 9 {
			return fmt.Errorf("%w: decile %d, allowed: 0 to 9", ErrInvalid, g.Group.Decile)
		}
		if i > 0 {
			if b := groups[i-1].Group; cmp.Or(cmp.Compare(b.Class, g.Group.Class), cmp.Compare(b.Decile, g.Group.Decile)) >= 0 {
				return fmt.Errorf("%w: groups of calibration are not in ascending order", ErrInvalid)
			}
		}
	}
	if _, err := conformal.ImportGroups(c.Supported, nil); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if _, err := conformal.Import(c.Physics); err != nil {
		return fmt.Errorf("%w: physics: %w", ErrInvalid, err)
	}
	return nil
}

// series are the figures of a class, in the order of the file.
func series(c *length.Counts) [4]*[length.Bins]float64 {
	return [4]*[length.Bins]float64{&c.Risk, &c.Ended, &c.Tokens, &c.Squares}
}

func encodeLengths(s *length.State) []byte {
	b := make([]byte, 0, 12+len(s.Classes)*classBytes)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.HalfLife))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.Classes)))
	for i := range s.Classes {
		for _, v := range series(&s.Classes[i]) {
			for _, x := range v {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
			}
		}
	}
	return b
}

func decodeLengths(b []byte) (length.State, error) {
	var s length.State
	if len(b) < 12 {
		return s, fmt.Errorf("%w: lengths are cut short", ErrFormat)
	}
	s.HalfLife = math.Float64frombits(binary.LittleEndian.Uint64(b))
	n := binary.LittleEndian.Uint32(b[8:])
	b = b[12:]
	if uint64(len(b)) != uint64(n)*classBytes {
		return s, fmt.Errorf("%w: lengths of %d classes in %d bytes", ErrFormat, n, len(b))
	}
	s.Classes = make([]length.Counts, n)
	for i := range s.Classes {
		for _, v := range series(&s.Classes[i]) {
			for k := range v {
				v[k] = math.Float64frombits(binary.LittleEndian.Uint64(b))
				b = b[8:]
			}
		}
	}
	return s, nil
}
