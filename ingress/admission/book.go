package admission

import (
	"fmt"
	"math"
)

// Amount is what requests hold, or the most that they may. As a limit, 0 is none.
type Amount struct {
	Requests int64
	Bytes    int64 // of bodies
	Tokens   int64 // of prompts and caps
}

// plus reports whether a and b stay within the limit together, and their sum. Both are ≥ 0.
func (a Amount) plus(b, limit Amount) (sum Amount, ok bool) {
	add := func(x, y, most int64) int64 {
		if most == 0 {
			most = math.MaxInt64
		}
		ok = ok && x <= most && y <= most-x
		return x + y
	}
	ok = true
	sum = Amount{add(a.Requests, b.Requests, limit.Requests), add(a.Bytes, b.Bytes, limit.Bytes), add(a.Tokens, b.Tokens, limit.Tokens)}
	return sum, ok
}

func (a Amount) minus(b Amount) Amount {
	return Amount{a.Requests - b.Requests, a.Bytes - b.Bytes, a.Tokens - b.Tokens}
}

// Limits are the hard limits, which stand whatever a model says.
type Limits struct {
	Total Amount
	// Tenant is for each tenant that has none of its own in Tenants; nil: none has.
	Tenant  Amount
	Tenants map[string]Amount
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (l *Limits) Validate() error {
	check := func(key string, a Amount) error {
		if min(a.Requests, a.Bytes, a.Tokens) < 0 {
			return bad(key, fmt.Sprintf("%+v", a), "0 (no limit) and more")
		}
		return nil
	}
	if err := check("limits.total", l.Total); err != nil {
		return err
	}
	if err := check("limits.tenant", l.Tenant); err != nil {
		return err
	}
	for name, a := range l.Tenants {
		if err := check("limits.tenants."+name, a); err != nil {
			return err
		}
	}
	return nil
}

// Book holds what requests have reserved, for all and for each tenant. A reservation is made whole or not at all, before the
// request's body is worked on: its tokens are then not known, so that an upper bound is reserved (a prompt has at most as many
// tokens as bytes, and those of the template) and amended later. It has one owner, and remembers only tenants that hold something.
type Book struct {
	limits  Limits
	total   Amount
	tenants map[string]Amount
}

// NewBook returns an empty Book, or ErrConfig. It keeps the limits.
func NewBook(limits Limits) (*Book, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	return &Book{limits: limits, tenants: map[string]Amount{}}, nil
}

// Hold is one request's reservation. The zero value holds nothing; a copy must not be used beside the original.
type Hold struct {
	tenant string
	amount Amount
	held   bool
}

// Held returns whether anything is held, and what.
func (h *Hold) Held() (Amount, bool) { return h.amount, h.held }

// Reserve reserves for a request, into h, which must hold nothing. It returns NoReason, or why it did not: Capacity or
// TenantCapacity. What is below 0 counts as 0; Requests as 1.
func (b *Book) Reserve(h *Hold, tenant string, a Amount) Reason {
	if h.held {
		return Capacity
	}
	a = Amount{Requests: 1, Bytes: max(0, a.Bytes), Tokens: max(0, a.Tokens)}
	if reason := b.add(tenant, Amount{}, a); reason != NoReason {
		return reason
	}
	*h = Hold{tenant: tenant, amount: a, held: true}
	return NoReason
}

// Amend changes what h holds. It returns NoReason, or why it did not, in which case h holds what it did. What is not more than
// before always fits. Of a Hold that holds nothing it changes nothing.
func (b *Book) Amend(h *Hold, a Amount) Reason {
	if !h.held {
		return NoReason
	}
	a = Amount{Requests: 1, Bytes: max(0, a.Bytes), Tokens: max(0, a.Tokens)}
	if a.Bytes <= h.amount.Bytes && a.Tokens <= h.amount.Tokens {
		b.subtract(h.tenant, h.amount.minus(a))
	} else if reason := b.add(h.tenant, h.amount, a); reason != NoReason {
		return reason
	}
	h.amount = a
	return NoReason
}

// Release gives back what h holds; it holds nothing then. It may be repeated.
func (b *Book) Release(h *Hold) {
	if h.held {
		b.subtract(h.tenant, h.amount)
	}
	*h = Hold{}
}

// Total returns what all hold.
func (b *Book) Total() Amount { return b.total }

// Tenant returns what a tenant holds.
func (b *Book) Tenant(name string) Amount { return b.tenants[name] }

// Tenants returns how many hold anything.
func (b *Book) Tenants() int { return len(b.tenants) }

// add puts a in the place of old, if that fits.
func (b *Book) add(tenant string, old, a Amount) Reason {
	total, ok := b.total.minus(old).plus(a, b.limits.Total)
	if !ok {
		return Capacity
	}
	limit, own := b.limits.Tenants[tenant]
	if !own {
		limit = b.limits.Tenant
	}
	t, ok := b.tenants[tenant].minus(old).plus(a, limit)
	if !ok {
		return TenantCapacity
	}
	b.total, b.tenants[tenant] = total, t
	return NoReason
}

func (b *Book) subtract(tenant string, a Amount) {
	b.total = b.total.minus(a)
	if t := b.tenants[tenant].minus(a); t.Requests > 0 {
		b.tenants[tenant] = t
	} else {
		delete(b.tenants, tenant)
	}
}
