package core

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"pgregory.net/rapid"
)

func TestEDFRank(t *testing.T) {
	const at = 1_760_000_000_000_000_000
	for _, c := range []struct {
		name   string
		order  EDF
		budget time.Duration
		want   int64
	}{
		{"deadline", EDF{}, time.Second, at + 1e9},
		{"none", EDF{}, 0, math.MaxInt64},
		{"stand-in", EDF{NoDeadline: time.Minute}, 0, at + 60e9},
		{"beyond time", EDF{}, math.MaxInt64, math.MaxInt64},
	} {
		if got := c.order.Rank(&Request{StoredAt: at, Budget: c.budget}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestOrdersWithoutDeadlines(t *testing.T) {
	short := &Request{Seq: 2, StoredAt: 9, MaxTokens: 8, Budget: 5}
	long := &Request{Seq: 1, StoredAt: 3, MaxTokens: 256}
	if (FCFS{}).Rank(short) != (FCFS{}).Rank(long) {
		t.Error("FCFS tells requests apart: only their sequence may")
	}
	if (SJF{}).Rank(short) >= (SJF{}).Rank(long) {
		t.Error("SJF puts a long request first")
	}
}

func TestLeastLoadedScore(t *testing.T) {
	for _, c := range []struct {
		load Load
		want float64
	}{
		{Load{Slots: 4}, 0},
		{Load{Slots: 4, InFlight: 1}, 0.25},
		{Load{Slots: 4, InFlight: 1, KVPages: 10, Pages: 5}, 0.5},
		{Load{Slots: 4, InFlight: 3, KVPages: 10, Pages: 5}, 0.75},
	} {
		if got := (LeastLoaded{}).Score(nil, c.load); got != c.want {
			t.Errorf("%+v: %v, want %v", c.load, got, c.want)
		}
	}
}

func TestLeftOfTheDeadline(t *testing.T) {
	q := Request{StoredAt: 100, Budget: 50}
	for now, want := range map[int64]time.Duration{120: 30, 150: -1, 170: -20} {
		if got := q.left(now); got != want {
			t.Errorf("at %d: %d, want %d", now, got, want)
		}
	}
	if got := (&Request{StoredAt: 100}).left(500); got != 0 {
		t.Errorf("no deadline: %d", got)
	}
}

// A lane, beside a list that is sorted anew each time.
func TestLaneKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &lane{}
		var all []*request
		sorted := func() []*request {
			var in []*request
			for _, r := range all {
				if !r.parked {
					in = append(in, r)
				}
			}
			slices.SortFunc(in, func(a, b *request) int {
				if a.front != b.front {
					if a.front {
						return -1
					}
					return 1
				}
				return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Seq, b.Seq))
			})
			return in
		}
		seq := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				seq++
				r := &request{rank: rapid.Int64Range(0, 5).Draw(t, "rank"), front: rapid.IntRange(0, 4).Draw(t, "front") == 0}
				r.Seq = seq
				all = append(all, r)
				l.push(r)
			},
			"pop": func(t *rapid.T) {
				in := sorted()
				if len(in) == 0 {
					t.Skip()
				}
				l.remove(in[0])
				all = slices.DeleteFunc(all, func(r *request) bool { return r == in[0] })
			},
			"remove": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "i")
				l.remove(all[i])
				all = slices.Delete(all, i, i+1)
			},
			"park": func(t *rapid.T) {
				in := sorted()
				if len(in) == 0 {
					t.Skip()
				}
				l.park(in[0])
			},
			"unpark": func(*rapid.T) { l.unpark() },
			"": func(t *rapid.T) {
				in := sorted()
				if len(in) > 0 && l.heap[0].req != in[0] {
					t.Fatalf("head has rank %d and sequence %d, want %d and %d", l.heap[0].rank, l.heap[0].seq, in[0].rank, in[0].Seq)
				}
				if l.len() != len(all) || len(l.heap) != len(in) {
					t.Fatalf("%d in the heap, %d parked, want %d and %d", len(l.heap), len(l.parked), len(in), len(all)-len(in))
				}
			},
		})
	})
}

func TestConfigNamesTheKey(t *testing.T) {
	good := DefaultConfig("p", "s")
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, breakIt := range map[string]func(*Config){
		"pool":               func(c *Config) { c.Pool = "a.b" },
		"source":             func(c *Config) { c.Source = "" },
		"max_attempts":       func(c *Config) { c.MaxAttempts = 0 },
		"worker_lost_after":  func(c *Config) { c.WorkerLostAfter = 0 },
		"ingress_lost_after": func(c *Config) { c.IngressLostAfter = -1 },
		"no_listener_after":  func(c *Config) { c.NoListenerAfter = -1 },
		"max_queue_wait":     func(c *Config) { c.MaxQueueWait = -1 },
		"cancel_every":       func(c *Config) { c.CancelEvery = 0 },
		"orphan_age":         func(c *Config) { c.OrphanAge = 0 },
		"max_group":          func(c *Config) { c.MaxGroup = 1 },
		"max_batch_bytes":    func(c *Config) { c.MaxBatchBytes = 0 },
	} {
		c := DefaultConfig("p", "s")
		breakIt(&c)
		if _, err := New(c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func graveID(i int) schema.RequestID { return schema.RequestID(strconv.Itoa(i)) }

func TestGravesForgetTheOldest(t *testing.T) {
	g := newGraves[schema.RequestID]()
	for i := range graveyard + 10 {
		g.add(graveID(i))
	}
	if g.has(graveID(9)) || !g.has(graveID(10)) || !g.has(graveID(graveyard+9)) || len(g.ids) != graveyard {
		t.Fatalf("%d remembered", len(g.ids))
	}
}
