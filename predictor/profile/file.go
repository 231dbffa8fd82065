package profile

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
)

//go:embed *.json
var embedded embed.FS

// Embedded returns the names of the profiles that come with the package, in order.
func Embedded() []string {
	files, err := embedded.ReadDir(".")
	if err != nil {
		return nil // the directory is there
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), path.Ext(f.Name()))
	}
	return names
}

// Open returns an embedded profile, or ErrProfile, which names those that there are.
func Open(name string) (*Profile, error) {
	b, err := embedded.ReadFile(name + ".json")
	if err != nil {
		return nil, fmt.Errorf("%w: name is %q, allowed: %s", ErrProfile, name, strings.Join(Embedded(), ", "))
	}
	return Decode(b)
}

// Decode reads a profile in JSON and validates it. A key that is not known is an error.
func Decode(b []byte) (*Profile, error) {
	p := &Profile{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: there is more behind the profile", ErrProfile)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// SHA256 returns the hash, in hexadecimal, of what Encode returns: whatever its file is called, a profile is its content.
func (p *Profile) SHA256() (string, error) {
	c := *p
	b, err := c.Encode()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Encode returns the profile in JSON, as Decode reads it, or why it is not valid. It sets Version.
func (p *Profile) Encode() ([]byte, error) {
	p.Version = Version
	if err := p.Validate(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	return append(b, '\n'), nil
}
