package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

func queued(n int, model string, rank int64) *request {
	return &request{rank: rank, Request: Request{ID: schema.RequestID(fmt.Sprintf("00000000-0000-7000-8000-%012d", n)), Tenant: "acme", Model: model,
		Kind: schema.KindChat, PromptTokens: int32(1 + n%700), MaxTokens: int32(1 + n%90), Seq: uint64(n), StoredAt: int64(n)}}
}

func empty(tb interface{ Fatal(...any) }) *Core {
	cfg := DefaultConfig("p", "s")
	c, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	c.epoch = 7
	return c
}

// Whatever comes and goes: a snapshot lists what a sort of the whole queue has first, and its sums are those of all.
func TestSnapshotIsTheQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := empty(t)
		var waiting, parked []*request
		n := 0
		before := c.Changes()
		for range rapid.IntRange(0, 30).Draw(t, "calls") {
			pick := func(from *[]*request) *request {
				i := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
				r := (*from)[i]
				*from = slices.Delete(*from, i, i+1)
				return r
			}
			switch call := rapid.IntRange(0, 9).Draw(t, "call"); {
			case call == 0 && len(waiting) > 0:
				c.unwait(pick(&waiting))
			case call == 1 && len(waiting) > 0:
				r := pick(&waiting)
				c.lane(r.Model).park(r)
				parked = append(parked, r)
			case call == 2 && len(parked) > 0:
				c.unwait(pick(&parked))
			case call == 3:
				for _, l := range c.order {
					l.unpark()
				}
				waiting, parked = append(waiting, parked...), nil
			case call == 4 && len(waiting) > 0:
				if r := waiting[rapid.IntRange(0, len(waiting)-1).Draw(t, "late")]; !r.late {
					c.lane(r.Model).demote(r)
				}
			default:
				for range rapid.SampledFrom([]int{1, 1, 1, 1, 1, 2, 3, 5, 8, 13, 21, 34, 300}).Draw(t, "burst") {
					n++
					r := queued(n, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "model"), rapid.Int64Range(0, 20).Draw(t, "rank"))
					r.front = n%17 == 0
					if n%5 == 0 {
						r.Class = schema.Guaranteed
					}
					c.wait(r)
					waiting = append(waiting, r)
				}
			}
		}
		if len(waiting)+len(parked) > 0 && c.Changes() == before {
			t.Fatal("the queue has changed, and nobody says so")
		}
		var s schema.PoolState
		c.Snapshot(&s, 1000)
		slices.SortFunc(waiting, func(x, y *request) int {
			a, b := waiter{x.group(), x.rank, x.Seq, x}, waiter{y.group(), y.rank, y.Seq, y}
			if a.before(&b) {
				return -1
			}
			return 1
		})
		prompt, most := int64(0), int64(0)
		for _, r := range waiting {
			prompt, most = prompt+int64(r.PromptTokens), most+int64(r.MaxTokens)
		}
		if int(s.WaitingRequests) != len(waiting) || s.WaitingPromptTokens != prompt || s.WaitingCapTokens != most || s.Pool != "p" || s.Epoch != 7 {
			t.Fatalf("%d requests, %d + %d tokens; want %d, %d + %d", s.WaitingRequests, s.WaitingPromptTokens, s.WaitingCapTokens, len(waiting), prompt, most)
		}
		if len(s.Waiting) != min(len(waiting), schema.MaxListed) {
			t.Fatalf("%d listed of %d", len(s.Waiting), len(waiting))
		}
		for i := range s.Waiting {
			if s.Waiting[i].Request != waiting[i].ID {
				t.Fatalf("at %d: %s, want %s", i, s.Waiting[i].Request, waiting[i].ID)
			}
		}
		s.Interval = time.Second
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSnapshotOfARequest(t *testing.T) {
	c := empty(t)
	r := queued(1, "m", 0)
	r.Class, r.PromptTokens, r.MaxTokens, r.StoredAt = schema.Guaranteed, 500, 64, 1000
	r.Budget, r.TTFTBudget = 90, 40
	c.wait(r)
	var s schema.PoolState
	see := func(now int64) schema.SequenceState {
		t.Helper()
		if c.Snapshot(&s, now); len(s.Waiting) != 1 {
			t.Fatalf("%+v", s)
		}
		return s.Waiting[0]
	}
	want := schema.SequenceState{Request: r.ID, Tenant: "acme", Kind: schema.KindChat, Class: schema.Guaranteed, PromptTokens: 500, PrefillTokens: 500, CapTokens: 64,
		Age: 30, Budget: 60, TTFTBudget: 10}
	if got := see(1030); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := see(900); got.Age != 0 {
		t.Errorf("by a clock that is behind it is %v old", got.Age)
	}
	c.unwait(r)
	r.resume = schema.Tokens{7, 8, 9} // its worker was lost
	c.wait(r)
	want.PrefillTokens, want.OutputTokens, want.Age, want.Budget, want.TTFTBudget = 503, 3, 90, -1, 0
	if got := see(1090); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A snapshot of a queue of so many, which the owner takes at most 50 times in a second:
//
//	go test -run '^$' -bench Snapshot -benchmem ./scheduler/core
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{40, 100_000} {
		b.Run(fmt.Sprint("queue=", n), func(b *testing.B) {
			c := empty(b)
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range n {
				c.wait(queued(i+1, "m", rng.Int64()))
			}
			var s schema.PoolState
			b.ReportAllocs()
			for b.Loop() {
				c.Snapshot(&s, int64(n))
			}
			if len(s.Waiting) != min(n, schema.MaxListed) {
				b.Fatal(len(s.Waiting))
			}
		})
	}
}

// What a state of 512 waiting requests costs to encode: go test -run '^$' -bench EncodeSnapshot ./scheduler/core.
func BenchmarkEncodeSnapshot(b *testing.B) {
	c := empty(b)
	for i := range schema.MaxListed {
		c.wait(queued(i+1, "m", 0))
	}
	s := schema.PoolState{Interval: time.Second}
	c.Snapshot(&s, 1000)
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		body, err := schema.Encode(&s)
		if err != nil {
			b.Fatal(err)
		}
		bytes = len(body)
	}
	b.ReportMetric(float64(bytes), "bytes")
}
