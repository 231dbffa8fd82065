package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

func TestUnconfirmedForgetsWhatIsConfirmed(t *testing.T) {
	var u unconfirmed
	ids := []int32{0}
	for i := range int32(10) {
		ids[0] = i // the publisher uses its memory again
		u.keep(time.Duration(i), "i", &schema.Chunk{Index: i, IDs: ids, Text: "x"})
	}
	u.confirm(4)
	var got []int32
	for _, s := range u.all() {
		got = append(got, s.chunk.IDs...)
	}
	if !slices.Equal(got, []int32{4, 5, 6, 7, 8, 9}) {
		t.Fatalf("%v", got)
	}
	u.confirm(100)
	if len(u.all()) != 0 || u.bytes != 0 {
		t.Fatalf("%d left, %d bytes", len(u.all()), u.bytes)
	}
}

func TestUnconfirmedIsBounded(t *testing.T) {
	var u unconfirmed
	text := string(make([]byte, 1<<20))
	for i := range int32(100) {
		u.keep(time.Duration(i), "i", &schema.Chunk{Index: i, IDs: []int32{i}, Text: text})
		if u.bytes > resendBytes {
			t.Fatalf("%d bytes", u.bytes)
		}
	}
	all := u.all()
	if n := len(all); n < 10 || all[n-1].chunk.Index != 99 || all[0].chunk.Index != int32(100-n) {
		t.Fatalf("%d kept, from %d", n, all[0].chunk.Index)
	}
}

// BenchmarkKeep is what keeping costs a chunk: go test -bench Keep ./worker.
func BenchmarkKeep(b *testing.B) {
	var u unconfirmed
	c := &schema.Chunk{IDs: []int32{1, 2, 3, 4}, Text: " four little words"}
	b.ReportAllocs()
	at := time.Duration(0)
	for b.Loop() {
		at++
		u.keep(at, "i", c)
		if at%1024 == 0 {
			u.confirm(at - 512)
		}
	}
}
