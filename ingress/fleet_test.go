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
	g := newGate(3, 2, 100)
	var a, b, c, d place
	for _, p := range []*place{&a, &b} {
		if r := g.reserve(p, 40); r != "" {
			t.Fatal(r)
		}
	}
	if r := g.reserve(&c, 1); r != schema.RefusedCapacity { // number of waiting
		t.Errorf("%q", r)
	}
	g.start(&a)
	g.start(&a)
	if r := g.reserve(&c, 61); r != schema.RefusedCapacity { // bytes
		t.Errorf("%q", r)
	}
	if r := g.reserve(&c, 60); r != "" {
		t.Errorf("%q", r)
	}
	g.start(&b)
	if r := g.reserve(&d, 1); r != schema.RefusedCapacity { // open
		t.Errorf("%q", r)
	}
	g.free(&b)
	g.free(&b)
	if open, waiting, bytes := g.count(); open != 2 || waiting != 1 || bytes != 60 {
		t.Errorf("%d open, %d waiting, %d bytes", open, waiting, bytes)
	}
	empty := g.close()
	if r := g.reserve(&d, 1); r != schema.RefusedDraining {
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
	g := newGate(1000, 1000, 1<<30)
	if w := g.wait(); w != 0 {
		t.Errorf("without a rate: %v", w)
	}
	places := make([]place, 100)
	for i := range 200 { // 5 first tokens a second
		for j := range 5 {
			p := &places[(5*i+j)%len(places)]
			g.reserve(p, 1)
			g.start(p)
			g.free(p)
		}
		g.tick(time.Second)
	}
	for i := range 50 {
		g.reserve(&places[i], 1)
	}
	if w := g.wait(); w < 9*time.Second || w > 11*time.Second {
		t.Errorf("50 waiting at 5 a second: %v", w)
	}
}
