// Package profiletest opens profiles for tests; not for other code.
package profiletest

import (
	"testing"

	"github.com/cadence-slo/cadence/predictor/profile"
)

// Open returns a fresh copy of a profile that comes with package profile, which the caller may change, or ends the test.
func Open(t testing.TB, name string) *profile.Profile {
	t.Helper()
	p, err := profile.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
