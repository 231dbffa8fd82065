package kvtest_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/cadence-slo/cadence/worker/kv"
	"github.com/cadence-slo/cadence/worker/kv/kvtest"
)

// drive does what the input says with a fast and a naive allocator, valid calls and others, and compares all that can
// be seen after each.
func drive(t *testing.T, input []byte) {
	next := func(n int) int {
		if len(input) == 0 {
			return 0
		}
		b := input[0]
		input = input[1:]
		return int(b) % n
	}
	size, pages := 1+next(5), 4+next(20)
	paged, err := kv.NewPaged(size, pages)
	if err != nil {
		t.Fatal(err)
	}
	contiguous, err := kv.NewContiguous(size, pages)
	if err != nil {
		t.Fatal(err)
	}
	all := [2]kv.Allocator{paged, kvtest.NewPaged(size, pages)}
	if next(3) == 0 {
		all = [2]kv.Allocator{contiguous, kvtest.NewContiguous(size, pages)}
	}
	var tables [2][5]kv.Table
	some := func() (out []kv.PageID) {
		if from := tables[0][next(5)].Pages(); len(from) > 0 && next(4) > 0 {
			first := next(len(from))
			return slices.Clone(from[first : first+next(len(from)-first+1)])
		}
		for range next(4) {
			out = append(out, kv.PageID(next(pages+2)-1))
		}
		return out
	}
	for step := 0; len(input) > 0 && step < 400; step++ {
		k, o, tokens, list := next(5), next(5), next(size*pages/2+2)-1, some()
		op := next(12)
		var got [2]error
		for i, a := range all {
			table := &tables[i][k]
			switch op {
			case 0, 1, 2:
				got[i] = a.Reserve(table, table.Tokens()+tokens/2)
			case 3, 4:
				got[i] = a.Fill(table, min(tokens, len(table.Pages())*size))
			case 5:
				got[i] = a.Fill(table, tokens)
			case 6:
				got[i] = a.Share(table, list, len(list)*size-tokens%size)
			case 7:
				got[i] = a.Replace(table, list)
			case 8:
				got[i] = a.Fork(table, &tables[i][o])
			case 9:
				got[i] = a.Hold(list)
			case 10:
				got[i] = a.Drop(list)
			default:
				a.Release(table)
			}
		}
		for _, s := range []error{nil, kv.ErrNoPages, kv.ErrTable, kv.ErrPages, kv.ErrSharing} {
			if errors.Is(got[0], s) != errors.Is(got[1], s) {
				t.Fatalf("step %d, operation %d: fast %v, naive %v", step, op, got[0], got[1])
			}
		}
		for _, a := range all {
			if err := a.Check(); err != nil {
				t.Fatalf("step %d, operation %d: %v", step, op, err)
			}
		}
		if a, b := all[0].Stats(), all[1].Stats(); a != b {
			t.Fatalf("step %d, operation %d: fast %+v, naive %+v", step, op, a, b)
		}
		for k := range tables[0] {
			a, b := &tables[0][k], &tables[1][k]
			if !slices.Equal(a.Pages(), b.Pages()) || a.Tokens() != b.Tokens() || all[0].Need(a, tokens) != all[1].Need(b, tokens) {
				t.Fatalf("step %d, operation %d, table %d: fast %v %d, naive %v %d", step, op, k, a.Pages(), a.Tokens(), b.Pages(), b.Tokens())
			}
		}
	}
}

func random(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	out := make([]byte, 1000)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

func TestLockstep(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { drive(t, random(seed)) })
	}
}

// FuzzLockstep looks for inputs on which a fast and a naive allocator differ. Inputs are not made small, which would take
// all the time.
//
//	go test -run '^$' -fuzz FuzzLockstep -fuzztime 60s -fuzzminimizetime 1x ./worker/kv/kvtest
func FuzzLockstep(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(random(seed))
	}
	f.Fuzz(drive)
}
