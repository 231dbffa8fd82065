package admission_test

import (
	"math"
	"testing"

	"github.com/cadence-slo/cadence/ingress/admission"
	"pgregory.net/rapid"
)

// Requests that are alike in all three have one class, others have another until there are none left; then those of a half octave
// share one that nobody has for itself.
func TestClassesAreByOwnerKindAndHalfOctave(t *testing.T) {
	const shared = 41
	type key struct {
		owner, kind string
		half        int
	}
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(-1, 80).Draw(t, "most")
		c := admission.NewClasses(most)
		own, names := map[key]int32{}, map[int32]key{}
		for range rapid.IntRange(1, 100).Draw(t, "requests") {
			k := key{rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "owner"), rapid.SampledFrom([]string{"", "a", "c"}).Draw(t, "kind"), 0}
			limit := rapid.OneOf(rapid.Int32Range(-2, 40), rapid.Int32()).Draw(t, "cap")
			k.half = min(int(2*math.Log2(float64(max(1, limit)))+1e-9), shared-1)
			n := c.Of(k.owner, k.kind, limit)
			if n < 0 || int(n) >= max(1, most) {
				t.Fatalf("class %d of %d", n, most)
			}
			if was, ok := own[k]; ok && n != was {
				t.Fatalf("%+v has class %d after %d", k, n, was)
			}
			if n < shared {
				if room := most - shared; len(own) < room {
					t.Fatalf("%+v shares class %d, but there is room for %d", k, n, room-len(own))
				}
				if want := min(k.half, max(1, most)-1); int(n) != want {
					t.Fatalf("%+v shares class %d, want %d", k, n, want)
				}
				continue
			}
			if other, ok := names[n]; ok && other != k {
				t.Fatalf("%+v and %+v have class %d", k, other, n)
			}
			own[k], names[n] = n, k
		}
	})
}

func TestClassesCloneApart(t *testing.T) {
	c := admission.NewClasses(100)
	first := c.Of("a", "", 1)
	d := c.Clone()
	second := c.Of("b", "", 1)
	if got := d.Of("c", "", 1); got != second || d.Of("a", "", 1) != first || d.Of("b", "", 1) == second {
		t.Errorf("the clone gives %d, want %d", got, second)
	}
}

func TestClassesDoNotAllocate(t *testing.T) {
	c := admission.NewClasses(100)
	c.Of("tenant", "chat", 300)
	if n := testing.AllocsPerRun(100, func() { c.Of("tenant", "chat", 350) }); n != 0 {
		t.Errorf("%v allocations for a class that is known", n)
	}
}
