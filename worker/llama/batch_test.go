package llama

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestBatchAdd(t *testing.T) {
	b := NewBatch(3)
	for want, sequences := range [][]SeqID{{0}, {1, 2}} {
		row, err := b.Add(7, Pos(want), want == 1, sequences...)
		if err != nil || row != want {
			t.Fatalf("row %d, error %v, want row %d", row, err, want)
		}
	}
	for name, add := range map[string]func() (int, error){
		"negative token":    func() (int, error) { return b.Add(-1, 0, true, 0) },
		"negative position": func() (int, error) { return b.Add(0, -1, true, 0) },
		"no sequence":       func() (int, error) { return b.Add(0, 0, true) },
		"negative sequence": func() (int, error) { return b.Add(0, 0, true, -1) },
		"huge sequence":     func() (int, error) { return b.Add(0, 0, true, MaxSequences) },
		"sequence twice":    func() (int, error) { return b.Add(0, 0, true, 3, 4, 3) },
	} {
		if _, err := add(); !errors.Is(err, ErrBadBatch) || b.Len() != 2 {
			t.Errorf("%s: error %v, %d tokens in the batch", name, err, b.Len())
		}
	}
	if _, err := b.Add(9, 2, false, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(9, 3, false, 5); !errors.Is(err, ErrBatchFull) {
		t.Errorf("fourth of three tokens: %v", err)
	}
	if !slices.Equal(b.sequences, []int32{0, 1, 2, 5}) || !slices.Equal(b.counts, []int32{1, 2, 1}) || !slices.Equal(b.outputs, []int8{0, 1, 0}) {
		t.Errorf("batch is %+v", b)
	}
	if b.Reset(); b.Len() != 0 || b.Cap() != 3 {
		t.Errorf("after Reset: %d of %d", b.Len(), b.Cap())
	}
	if n := testing.AllocsPerRun(10, func() {
		b.Reset()
		for i := range 3 {
			if _, err := b.Add(1, Pos(i), true, 0); err != nil {
				t.Error(err)
			}
		}
	}); n != 0 {
		t.Errorf("refilling allocates %v times", n)
	}
}

func TestBatchSpans(t *testing.T) {
	held := map[SeqID]Pos{1: 4, 3: 9}
	last := func(s SeqID) Pos {
		if p, ok := held[s]; ok {
			return p
		}
		return -1
	}
	type add struct {
		token Token
		pos   Pos
		seqs  []SeqID
	}
	for name, c := range map[string]struct {
		adds []add
		want string // part of the error, "" for none
	}{
		"continue and start":     {[]add{{1, 5, []SeqID{1}}, {2, 0, []SeqID{2}}, {3, 6, []SeqID{1}}, {4, 1, []SeqID{2}}}, ""},
		"shared token":           {[]add{{1, 0, []SeqID{4, 5}}, {1, 1, []SeqID{4}}, {1, 1, []SeqID{5}}}, ""},
		"start above zero":       {[]add{{1, 20, []SeqID{2}}}, ""},
		"empty":                  {nil, "0 tokens"},
		"too many":               {[]add{{1, 0, []SeqID{0}}, {1, 1, []SeqID{0}}, {1, 2, []SeqID{0}}, {1, 3, []SeqID{0}}, {1, 4, []SeqID{0}}}, "5 tokens"},
		"token past vocabulary":  {[]add{{100, 0, []SeqID{0}}}, "row 0: llama: token"},
		"sequence past the last": {[]add{{1, 0, []SeqID{6}}}, "sequence 6"},
		"gap after the cache":    {[]add{{1, 6, []SeqID{1}}}, "position 5, not 6"},
		"position in the cache":  {[]add{{1, 4, []SeqID{1}}}, "position 5, not 4"},
		"gap in the batch":       {[]add{{1, 0, []SeqID{0}}, {1, 2, []SeqID{0}}}, "row 1: sequence 0 continues at position 1, not 2"},
		"position twice":         {[]add{{1, 0, []SeqID{0}}, {1, 0, []SeqID{0}}}, "row 1"},
		"shared but different":   {[]add{{1, 5, []SeqID{1, 3}}}, "sequence 3 continues at position 10"},
	} {
		b := NewBatch(8)
		for _, a := range c.adds {
			if _, err := b.Add(a.token, a.pos, false, a.seqs...); err != nil {
				t.Fatal(err)
			}
		}
		var spans [MaxSequences]span
		err := b.spans(100, 4, 6, last, &spans)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrBadBatch) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "continue and start" && (spans[1] != span{5, 7} || spans[2] != span{0, 2} || spans[0] != span{}) {
			t.Errorf("%s: spans %v", name, spans[:4])
		}
	}
}

func TestOptionsValidate(t *testing.T) {
	if err := errors.Join(DefaultContextOptions().Validate(), DefaultModelOptions().Validate()); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*ContextOptions){
		"Cells":            func(o *ContextOptions) { o.Cells = 0 },
		"BatchTokens":      func(o *ContextOptions) { o.BatchTokens = o.Cells + 1 },
		"MicroBatchTokens": func(o *ContextOptions) { o.MicroBatchTokens = o.BatchTokens + 1 },
		"Sequences":        func(o *ContextOptions) { o.Sequences = MaxSequences + 1 },
		"Threads":          func(o *ContextOptions) { o.Threads = 0 },
		"BatchThreads":     func(o *ContextOptions) { o.BatchThreads = -1 },
	} {
		o := DefaultContextOptions()
		change(&o)
		if err := o.Validate(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), " "+name+" is ") {
			t.Errorf("bad %s: %v", name, err)
		}
	}
	if err := (ModelOptions{GPULayers: -1}).Validate(); !errors.Is(err, ErrOptions) {
		t.Errorf("bad GPULayers: %v", err)
	}
}

// go test -bench BatchFill ./worker/llama
func BenchmarkBatchFill(b *testing.B) {
	batch := NewBatch(512)
	var spans [MaxSequences]span
	for b.Loop() {
		batch.Reset()
		for i := range 512 {
			if _, err := batch.Add(1, Pos(i/16), true, SeqID(i%16)); err != nil {
				b.Fatal(err)
			}
		}
		if err := batch.spans(100, 512, 16, func(SeqID) Pos { return -1 }, &spans); err != nil {
			b.Fatal(err)
		}
	}
}
