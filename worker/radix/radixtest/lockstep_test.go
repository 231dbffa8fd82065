package radixtest_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestLockstep runs random sequences of operations, 600 or as many as CADENCE_FUZZ_SEQUENCES says, and expects each of
// the interesting things to happen in a stated share of them. `make fuzz-kv` runs 5,000.
func TestLockstep(t *testing.T) {
	sequences := 600
	if v := os.Getenv("CADENCE_FUZZ_SEQUENCES"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 100 {
			t.Fatalf("CADENCE_FUZZ_SEQUENCES is %q, allowed is a number from 100", v)
		}
		sequences = n
	}
	floors := map[string]float64{
		prefixHit: 0.60, copyOnWrite: 0.70, eviction: 0.90, edgeSplit: 0.80, exhaustion: 0.50, pinBlocked: 0.30,
	}
	count, ops := map[string]int{}, 0
	for seed := range sequences {
		if !t.Run(strconv.Itoa(seed), func(t *testing.T) {
			d := drive(t, random(uint64(seed)))
			ops += d.ops
			for what := range d.reached {
				count[what]++
			}
		}) {
			t.FailNow()
		}
	}
	t.Logf("%d sequences, %d operations", sequences, ops)
	for what, floor := range floors {
		share := float64(count[what]) / float64(sequences)
		t.Logf("%-20s %5.1f %% (floor %.0f %%)", what, 100*share, 100*floor)
		if share < floor {
			t.Errorf("only %.3f of the sequences reached %s, expected are %.2f", share, what, floor)
		}
	}
}

// random returns the input of one sequence.
func random(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]byte, 500+r.IntN(1500))
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

// FuzzLockstep looks for inputs on which the fast and the naive implementation differ. Inputs are not made small, which
// would take all the time.
//
//	go test -run '^$' -fuzz FuzzLockstep -fuzztime 60s -fuzzminimizetime 1x ./worker/radix/radixtest
func FuzzLockstep(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(random(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) { drive(t, input) })
}
