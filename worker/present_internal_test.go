package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/digest"
	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/radix"
)

// The tree is hashed when it has changed, but not again before its time; hashing that takes long is done less often.
func TestCollect(t *testing.T) {
	tree, err := radix.New(2)
	if err != nil {
		t.Fatal(err)
	}
	now, cost := time.Duration(0), time.Duration(0)
	clock := func() time.Duration { now += cost; return now }
	page := kv.PageID(0)
	insert := func(tokens ...int32) {
		t.Helper()
		pages := tree.Match("t", tokens, nil).Pages
		for len(pages) < len(tokens)/2 {
			pages = append(pages, page)
			page++
		}
		in, err := tree.Insert("t", tokens, pages, kv.SeqID(page))
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Unpin(in.Ref); err != nil {
			t.Fatal(err)
		}
	}
	p := prefixes{tree: tree}
	p.reset(7)
	check := func(what string, done, behind bool, pages int) {
		t.Helper()
		if d, b := p.collect(clock); d != done || b != behind || len(p.spare) != pages {
			t.Errorf("%s: done %t, behind %t, %d hashes; want %t, %t, %d", what, d, b, len(p.spare), done, behind, pages)
		}
	}
	check("empty", true, false, 0)
	check("unchanged", false, false, 0)
	insert(1, 2, 3, 4)
	check("too early", false, true, 0)
	now += digestGap
	check("in time", true, false, 2)
	if want := digest.Extend(digest.Root(7, "t"), []int32{1, 2}); p.spare[0] != want {
		t.Errorf("hash %x, want %x", p.spare[0], want)
	}
	now += digestGap
	check("unchanged", false, false, 2)
	tree.Evict()
	insert(5, 6, 7, 8) // as many pages as before
	cost = time.Millisecond
	check("others", true, false, 2)
	insert(9, 9)
	cost = 0
	now += 90 * time.Millisecond
	check("it takes long", false, true, 2)
	now += 10 * time.Millisecond
	check("a hundred times as long", true, false, 3)
	p.reset(8)
	check("another key", true, false, 3)
	if p.collect(clock); len(p.spare) != 3 {
		t.Error(p.spare)
	}
	if d, b := (&prefixes{}).collect(clock); d || b {
		t.Error("there is no tree")
	}
}

func TestStateOfARun(t *testing.T) {
	r := &run{req: schema.Request{Prompt: make([]int32, 9), MaxTokens: 5, Budget: 10 * time.Second}, arrived: time.Second, budget: 8 * time.Second, left: -3}
	s := r.state(2 * time.Second)
	if s.Age != 3*time.Second || s.Budget != 7*time.Second || s.TTFTBudget != 0 || s.PrefillTokens != 0 || s.CapTokens != 5 {
		t.Errorf("%+v", s)
	}
	if s = r.state(9 * time.Second); s.Budget != -1 {
		t.Errorf("out of time to the nanosecond: %v left", s.Budget)
	}
	r.budget = -time.Second
	if s = r.state(2 * time.Second); s.Budget != -2*time.Second || s.Age != 12*time.Second {
		t.Errorf("late: %+v", s)
	}
	r.budget, r.req.Budget = 0, 0
	if s = r.state(2 * time.Second); s.Budget != 0 || s.Age != time.Second {
		t.Errorf("no deadline: %+v", s)
	}
	if s = r.state(time.Second - 1); s.Age != 0 {
		t.Errorf("younger than nothing: %+v", s)
	}
	r.req.TTFTBudget, r.firstBudget = 4*time.Second, time.Second
	if s = r.state(2 * time.Second); s.TTFTBudget != -1 || s.Age != 4*time.Second {
		t.Errorf("first token: %+v", s)
	}
	if r.output = 1; r.state(2*time.Second).TTFTBudget != 0 {
		t.Error("the first token is out")
	}
}

// crowd is an engine loop that holds so many requests, and a batch of all of them.
func crowd(tb testing.TB, n int) (*engine, *batch.Batch) {
	tb.Helper()
	c := batch.DefaultConfig()
	c.MaxBatch, c.Sequences, c.KVPages, c.BatchTokens = n, min(256, 2*n), 64*n, 32*n
	plan, err := batch.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := profile.Open("mock")
	if err != nil {
		tb.Fatal(err)
	}
	b := newBook("p", 1000, 16, c)
	e := newEngine(nil, plan, b, newOutbox(), func() time.Duration { return 0 }, nil, 1)
	e.profile = p
	b.begin(&life{id: "w"})
	for i := range n {
		r := &run{id: batch.ID(i + 1), life: b.life, req: schema.Request{ID: schema.RequestID(fmt.Sprintf("00000000-0000-7000-8000-%012d", i)), Tenant: "acme", Kind: schema.KindChat,
			Prompt: make([]int32, 16), MaxTokens: 64, Budget: time.Second}, budget: time.Second}
		e.runs[r.id], b.live[r.req.ID] = r, r
		if err := plan.Add(batch.Sequence{ID: r.id, Prompt: r.req.Prompt, MaxNew: 64}, 0); err != nil {
			tb.Fatal(err)
		}
	}
	step := plan.Plan(0)
	if len(step.Entries) != n {
		tb.Fatalf("%d of %d in a step", len(step.Entries), n)
	}
	return e, step
}

// What telling costs the engine loop in each step of 32 requests; a step takes milliseconds:
//
//	go test -run '^$' -bench Begin -benchmem ./worker
func BenchmarkBegin32(b *testing.B) {
	e, step := crowd(b, 32)
	b.ReportAllocs()
	for b.Loop() {
		e.begin(step)
		e.drift.observe(10*time.Millisecond, e.said(step))
	}
}

// What a state of 32 requests costs the teller, encoded; it sends 20 in a second, and at most 200:
//
//	go test -run '^$' -bench Look -benchmem ./worker
func BenchmarkLook32(b *testing.B) {
	e, step := crowd(b, 32)
	e.begin(step)
	w := &Worker{cfg: DefaultConfig(), engine: e, book: e.book}
	t := teller{w: w, life: e.book.life}
	b.ReportAllocs()
	for b.Loop() {
		body, err := schema.Encode(t.look(0))
		if err != nil || len(body) < 1000 {
			b.Fatal(len(body), err)
		}
	}
}

// What it takes to hash 4,096 cached pages of 16 tokens. The loop does it at most every 50 ms, and for a hundredth of its time:
//
//	go test -run '^$' -bench Collect -benchmem ./worker
func BenchmarkCollect4096(b *testing.B) {
	tree, err := radix.New(16)
	if err != nil {
		b.Fatal(err)
	}
	const prompts, size = 64, 1024
	for i := range prompts {
		tokens, pages := make([]int32, size), make([]kv.PageID, size/16)
		for k := range tokens {
			tokens[k] = int32(k*31+i*7919) % 151_936
		}
		for k := range pages {
			pages[k] = kv.PageID(i*len(pages) + k)
		}
		if _, err := tree.Insert("t", tokens, pages, kv.SeqID(i)); err != nil {
			b.Fatal(err)
		}
	}
	now := time.Duration(0)
	p := prefixes{tree: tree}
	b.ReportAllocs()
	for b.Loop() {
		p.reset(7)
		if done, _ := p.collect(func() time.Duration { now++; return now }); !done || len(p.spare) != prompts*size/16 {
			b.Fatal(len(p.spare))
		}
	}
}
