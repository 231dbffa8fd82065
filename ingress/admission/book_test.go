package admission_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/ingress/admission"
	"pgregory.net/rapid"
)

func TestBookConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Custom(func(t *rapid.T) admission.Amount {
			n := rapid.OneOf(rapid.Int64Range(0, 20), rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 5, -3}))
			return admission.Amount{Bytes: n.Draw(t, "bytes"), Tokens: n.Draw(t, "tokens")}
		})
		limit := rapid.Custom(func(t *rapid.T) admission.Amount {
			n := rapid.Int64Range(0, 60)
			return admission.Amount{Requests: rapid.Int64Range(0, 6).Draw(t, "requests"), Bytes: n.Draw(t, "bytes"), Tokens: n.Draw(t, "tokens")}
		})
		limits := admission.Limits{Total: limit.Draw(t, "total"), Tenant: limit.Draw(t, "tenant"),
			Tenants: map[string]admission.Amount{"c": limit.Draw(t, "c")}}
		b, err := admission.NewBook(limits)
		if err != nil {
			t.Fatal(err)
		}
		tenants := []string{"a", "b", "c"}
		holds := make([]admission.Hold, 12)
		owner := make([]string, len(holds))

		// sum adds up what is held by a tenant, "" for all, but for one hold; in floating point, so that it cannot overflow.
		sum := func(tenant string, but int) (requests, bytes, tokens float64) {
			for i := range holds {
				if a, ok := holds[i].Held(); ok && i != but && (tenant == "" || owner[i] == tenant) {
					requests, bytes, tokens = requests+1, bytes+float64(a.Bytes), tokens+float64(a.Tokens)
				}
			}
			return requests, bytes, tokens
		}
		over := func(v float64, limit int64) bool {
			if limit == 0 {
				limit = math.MaxInt64
			}
			return v > float64(limit)
		}
		exceeds := func(tenant string, but int, a admission.Amount, l admission.Amount) bool {
			requests, bytes, tokens := sum(tenant, but)
			bytes, tokens = bytes+float64(max(0, a.Bytes)), tokens+float64(max(0, a.Tokens))
			return over(requests+1, l.Requests) || over(bytes, l.Bytes) || over(tokens, l.Tokens)
		}
		own := func(tenant string) admission.Amount {
			if l, ok := limits.Tenants[tenant]; ok {
				return l
			}
			return limits.Tenant
		}
		huge := func(a admission.Amount) bool { return max(a.Bytes, a.Tokens) > 1<<50 } // where floating point is not exact

		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			i := rapid.IntRange(0, len(holds)-1).Draw(t, "hold")
			h := &holds[i]
			before, held := h.Held()
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				if held {
					continue
				}
				tenant, a := rapid.SampledFrom(tenants).Draw(t, "whose"), amount.Draw(t, "amount")
				want := admission.NoReason
				if exceeds("", i, a, limits.Total) {
					want = admission.Capacity
				} else if exceeds(tenant, i, a, own(tenant)) {
					want = admission.TenantCapacity
				}
				owner[i] = tenant
				if got := b.Reserve(h, tenant, a); got != want && !huge(a) && !huge(b.Total()) {
					t.Fatalf("reserve %+v for %s: %v, want %v", a, tenant, got, want)
				} else if _, ok := h.Held(); ok != (got == admission.NoReason) {
					t.Fatalf("%v, and held is %v", got, ok)
				}
			case 2:
				a := amount.Draw(t, "amount")
				got := b.Amend(h, a)
				less := max(0, a.Bytes) <= before.Bytes && max(0, a.Tokens) <= before.Tokens
				after, _ := h.Held()
				switch {
				case !held && got != admission.NoReason, held && less && got != admission.NoReason:
					t.Fatalf("amend %+v to %+v: %v", before, a, got)
				case held && got == admission.NoReason && (after.Bytes != max(0, a.Bytes) || after.Tokens != max(0, a.Tokens)):
					t.Fatalf("amended to %+v, want %+v", after, a)
				case got != admission.NoReason && after != before:
					t.Fatalf("not amended: %+v, was %+v", after, before)
				case held && !less && !huge(a) && !huge(b.Total()) && (got == admission.Capacity) != exceeds("", i, a, limits.Total):
					t.Fatalf("amend %+v to %+v: %v", before, a, got)
				}
			case 3:
				b.Release(h)
				b.Release(h)
			}
			live := map[string]bool{}
			for j := range holds {
				if _, ok := holds[j].Held(); ok {
					live[owner[j]] = true
				}
			}
			if b.Tenants() != len(live) {
				t.Fatalf("%d tenants are remembered, %d hold anything", b.Tenants(), len(live))
			}
			for _, tenant := range append(tenants, "") {
				got, l := b.Tenant(tenant), own(tenant)
				if tenant == "" {
					got, l = b.Total(), limits.Total
				}
				requests, bytes, tokens := sum(tenant, -1)
				near := func(got int64, want float64) bool { return math.Abs(float64(got)-want) <= 1e-9*want }
				if float64(got.Requests) != requests || !near(got.Bytes, bytes) || !near(got.Tokens, tokens) {
					t.Fatalf("%q holds %+v, want %v, %v, %v", tenant, got, requests, bytes, tokens)
				}
				if over(requests, l.Requests) || over(bytes, l.Bytes) || over(tokens, l.Tokens) || min(got.Requests, got.Bytes, got.Tokens) < 0 {
					t.Fatalf("%q holds %+v, at most %+v", tenant, got, l)
				}
			}
		}
		for i := range holds {
			b.Release(&holds[i])
		}
		if b.Total() != (admission.Amount{}) || b.Tenants() != 0 {
			t.Fatalf("%+v is left of %d tenants", b.Total(), b.Tenants())
		}
	})
}

func TestBookDoesNotReserveTwice(t *testing.T) {
	b, err := admission.NewBook(admission.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var h admission.Hold
	if r := b.Reserve(&h, "a", admission.Amount{Bytes: 5}); r != admission.NoReason {
		t.Fatal(r)
	}
	if r := b.Reserve(&h, "a", admission.Amount{Bytes: 5}); r != admission.Capacity || b.Total().Requests != 1 {
		t.Errorf("%v, and %+v in all", r, b.Total())
	}
}

func TestLimitsAreValidated(t *testing.T) {
	for key, l := range map[string]admission.Limits{
		"limits.total":     {Total: admission.Amount{Requests: -1}},
		"limits.tenant":    {Tenant: admission.Amount{Bytes: -1}},
		"limits.tenants.x": {Tenants: map[string]admission.Amount{"x": {Tokens: -1}}},
	} {
		if _, err := admission.NewBook(l); !errors.Is(err, admission.ErrConfig) || !strings.Contains(err.Error(), key+" ") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// go test ./ingress/admission -run - -bench BenchmarkBook -benchmem
func BenchmarkBook(b *testing.B) {
	book, err := admission.NewBook(admission.Limits{Total: admission.Amount{Requests: 1000, Bytes: 1 << 30, Tokens: 1 << 30}})
	if err != nil {
		b.Fatal(err)
	}
	holds := make([]admission.Hold, 500)
	tenants := []string{"a", "b", "c", "d"}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		h := &holds[i%len(holds)]
		book.Release(h)
		book.Reserve(h, tenants[i%len(tenants)], admission.Amount{Bytes: 4000, Tokens: 4100})
		book.Amend(h, admission.Amount{Bytes: 4000, Tokens: 1100})
		i++
	}
}
