package schema

import (
	"errors"
	"math/rand"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var (
	canonical = regexp.MustCompile(`\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z`)
	name      = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)
)

func TestNewID(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	now := time.Date(2026, 2, 28, 23, 59, 59, 999_900_000, time.UTC)
	last := ""
	for i := range 2000 {
		id, err := NewID(now, rng)
		if err != nil {
			t.Fatal(err)
		}
		if !canonical.MatchString(id) || !RequestID(id).Valid() || !ValidName(id) {
			t.Fatalf("%s is not canonical", id)
		}
		if id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Fatalf("%s is not a UUIDv7", id)
		}
		if id <= last {
			t.Fatalf("id %d: %s of a later millisecond is not above %s", i, id, last)
		}
		last = id
		now = now.Add(time.Millisecond)
	}
}

// TestNewIDOfKnownTime is the example of RFC 9562, appendix A.6.
func TestNewIDOfKnownTime(t *testing.T) {
	random := strings.NewReader("\x0c\xc3\x18\xc4\xdc\x0c\x0c\x07\x39\x8f")
	id, err := NewID(time.UnixMilli(0x017F22E279B0), random)
	if want := "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"; id != want || err != nil {
		t.Errorf("got %s, %v, want %s", id, err, want)
	}
}

func TestNewIDSpendsAllBits(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	now := time.UnixMilli(1_760_000_000_000)
	seen := map[string]bool{}
	var digits [36]map[byte]bool
	for range 4000 {
		id, err := NewID(now, rng)
		if err != nil {
			t.Fatal(err)
		}
		if seen[id] {
			t.Fatalf("%s came twice", id)
		}
		seen[id] = true
		for i := range digits {
			if digits[i] == nil {
				digits[i] = map[byte]bool{}
			}
			digits[i][id[i]] = true
		}
	}
	for i, d := range digits {
		want := 16
		switch {
		case i <= 14 || i == 18 || i == 23: // time, version and dashes
			want = 1
		case i == 19: // variant
			want = 4
		}
		if len(d) != want {
			t.Errorf("digit %d takes %d values, want %d", i, len(d), want)
		}
	}
}

func TestNewIDWithoutRandomness(t *testing.T) {
	broken := errors.New("broken")
	if id, err := NewID(time.Now(), iotest.ErrReader(broken)); id != "" || !errors.Is(err, broken) {
		t.Errorf("got %q, %v", id, err)
	}
}

func FuzzRequestIDValid(f *testing.F) {
	for _, s := range []string{
		string(idA), "", strings.ToUpper(string(idA)), string(idA) + "\n", string(idA[:35]), string(idA[:35]) + "*", "*", ">", "a.b",
		strings.Repeat("-", 36), strings.ReplaceAll(string(idA), "-", "a"), strings.Repeat("0", 36),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := RequestID(s).Valid(), canonical.MatchString(s); got != want {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	})
}

func FuzzValidName(f *testing.F) {
	for _, s := range []string{"", "a", "-", "_", "A-z_0", "a.b", "a*", ">", "a b", "é", "a\x00", strings.Repeat("x", 64), strings.Repeat("x", 65)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := ValidName(s), name.MatchString(s); got != want {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	})
}
