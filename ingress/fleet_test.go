package ingress

import (
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

func TestFleet(t *testing.T) {
	f := newFleet()
	now := time.Unix(1000, 0)
	beat := func(id schema.WorkerID, pool string, context int32, draining bool, at time.Time) {
		f.heard(&schema.WorkerState{Worker: id, Pool: pool, Model: "m", Interval: time.Second, ContextTokens: context, Draining: draining}, at)
	}
	want := func(pool string, context int32, ok bool, at time.Time) {
		t.Helper()
		if p, c, o := f.serving("m", at); p != pool || c != context || o != ok {
			t.Errorf("%q, %d, %v, want %q, %d, %v", p, c, o, pool, context, ok)
		}
	}
	want("", 0, false, now)
	beat("w1", "b", 4096, false, now)
	want("b", 4096, true, now)
	beat("w2", "b", 2048, false, now)
	want("b", 2048, true, now)
	beat("w3", "a", 8192, false, now)
	want("a", 8192, true, now)
	beat("w3", "a", 8192, true, now)
	want("b", 2048, true, now)
	beat("w2", "b", 2048, false, now.Add(2*time.Second))
	want("b", 2048, true, now.Add(4*time.Second)) // w1 is silent
	want("", 0, false, now.Add(6*time.Second))
	if _, _, ok := f.serving("other", now); ok {
		t.Error("another model is served")
	}
	beat("w4", "a", 1, false, now.Add(time.Hour))
	if len(f.workers) != 1 {
		t.Errorf("%d workers are remembered", len(f.workers))
	}
}

func TestGate(t *testing.T) {
	g := gateOf(3, 2, 100)
	var a, b, c, d place
	for _, p := range []*place{&a, &b} {
		if r := g.reserve(p, "t", 40); r != "" {
			t.Fatal(r)
		}
	}
	if r := g.reserve(&c, "t", 1); r != schema.RefusedCapacity { // number of waiting
		t.Errorf("%q", r)
	}
	g.start(&a)
	g.start(&a)
	if r := g.reserve(&c, "t", 61); r != schema.RefusedCapacity { // bytes
		t.Errorf("%q", r)
	}
	if r := g.reserve(&c, "t", 60); r != "" {
		t.Errorf("%q", r)
	}
	g.start(&b)
	if r := g.reserve(&d, "t", 1); r != schema.RefusedCapacity { // open
		t.Errorf("%q", r)
	}
	g.free(&b)
	g.free(&b)
	if open, waiting, bytes := g.count(); open != 2 || waiting != 1 || bytes != 60 {
		t.Errorf("%d open, %d waiting, %d bytes", open, waiting, bytes)
	}
	empty := g.close()
	if r := g.reserve(&d, "t", 1); r != schema.RefusedDraining {
		t.Errorf("%q", r)
	}
	g.free(&a)
	select {
	case <-empty:
		t.Error("empty too early")
	default:
	}
	g.free(&c)
	<-empty
}

func TestWaitIsPredictedFromTheRate(t *testing.T) {
	g := gateOf(1000, 1000, 1<<30)
	if w := g.wait(); w != 0 {
		t.Errorf("without a rate: %v", w)
	}
	places := make([]place, 100)
	for i := range 200 { // 5 first tokens a second
		for j := range 5 {
			p := &places[(5*i+j)%len(places)]
			g.reserve(p, "t", 1)
			g.start(p)
			g.free(p)
		}
		g.tick(time.Second)
	}
	for i := range 50 {
		g.reserve(&places[i], "t", 1)
	}
	if w := g.wait(); w < 9*time.Second || w > 11*time.Second {
		t.Errorf("50 waiting at 5 a second: %v", w)
	}
}

func gateOf(open, waiting int, bytes int64) *gate {
	g, err := newGate(&Config{MaxOpen: open, MaxWaiting: waiting, MaxWaitingBytes: bytes})
	if err != nil {
		panic(err)
	}
	return g
}

// A tenant has its own limits, which others do not notice.
func TestTenantLimits(t *testing.T) {
	g, err := newGate(&Config{MaxOpen: 10, MaxWaiting: 10, MaxWaitingBytes: 100, MaxOpenTokens: 100, MaxTenantOpen: 2, MaxTenantOpenTokens: 60})
	if err != nil {
		t.Fatal(err)
	}
	var p [5]place
	want := func(got, reason schema.RefusalReason) {
		t.Helper()
		if got != reason {
			t.Errorf("%q, want %q", got, reason)
		}
	}
	want(g.reserve(&p[0], "a", 1), "")
	want(g.reserve(&p[1], "a", 1), "")
	want(g.reserve(&p[2], "a", 1), refusedTenant)
	want(g.reserve(&p[3], "b", 1), "")
	want(g.amend(&p[0], 50), "")
	want(g.amend(&p[1], 11), refusedTenant)
	want(g.amend(&p[1], 10), "")
	want(g.amend(&p[3], 41), schema.RefusedCapacity) // of all
	if open, _, _ := g.count(); open != 3 {
		t.Errorf("%d are open", open)
	}
	for i := range p {
		g.free(&p[i])
		g.free(&p[i])
	}
	want(g.reserve(&p[4], "a", 1), "")
	g.free(&p[4])
	if a := g.book.Total(); a.Requests != 0 || a.Bytes != 0 || a.Tokens != 0 || g.book.Tenants() != 0 {
		t.Errorf("%+v is held by nobody", a)
	}
}
