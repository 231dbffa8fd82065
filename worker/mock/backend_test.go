package mock_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/worker"
	"github.com/cadence-slo/cadence/worker/batch"
	"github.com/cadence-slo/cadence/worker/mock"
	"github.com/cadence-slo/cadence/worker/workertest"
	"pgregory.net/rapid"
)

func TestConformance(t *testing.T) {
	workertest.Run(t, workertest.Suite{New: func(t testing.TB) worker.Backend {
		cfg := mock.FreeConfig()
		cfg.KVCells, cfg.Sequences, cfg.ContextTokens = 2048, 32, 512
		return open(t, cfg)
	}})
}

func TestMetamorphic(t *testing.T) {
	workertest.Metamorphic(t, workertest.Suite{New: func(t testing.TB) worker.Backend {
		cfg := mock.FreeConfig()
		cfg.KVCells, cfg.Sequences, cfg.ContextTokens, cfg.BatchTokens = 12_288, 32, 1024, 1024
		return open(t, cfg)
	}})
}

func open(t testing.TB, cfg mock.Config) *mock.Backend {
	t.Helper()
	b, err := mock.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestSpliceShows(t *testing.T) {
	b := open(t, mock.FreeConfig())
	prompt := []int32{1, 2, 3}
	run := func(attempt uint32, output []int32, n int) []int32 {
		r := workertest.Request{Prompt: prompt, Output: output, MaxNew: n, Attempt: attempt, Sampling: schema.Sampling{Seed: 9}}
		return workertest.Generate(t, b, []workertest.Request{r})[0]
	}
	first := run(1, nil, 20)
	if second := run(2, nil, 20); slices.Equal(first, second) {
		t.Fatal("two attempts say the same")
	}
	// What a second attempt makes of ten sealed tokens differs from both, and from what it makes of nine or of a wrong one.
	rest := run(2, first[:10], 10)
	if slices.Equal(rest, first[10:]) {
		t.Fatal("the splice does not show")
	}
	wrong := slices.Clone(first[:10])
	wrong[4]++
	if slices.Equal(run(2, wrong, 10), rest) || slices.Equal(run(2, first[:9], 10), rest) {
		t.Fatal("a changed or a lost token does not show")
	}
	for i, id := range rest {
		if want := mock.Next(mock.FreeConfig(), 9, 2, false, prompt, first[:10], rest[:i]); id != want {
			t.Fatalf("token %d is %d, Next says %d", i, id, want)
		}
	}
	free := mock.FreeConfig()
	free.AttemptIndependent = true
	b = open(t, free)
	first = run(1, nil, 20)
	if got := append(slices.Clone(first[:10]), run(2, first[:10], 10)...); !slices.Equal(got, first) {
		t.Fatal("attempt-independent text shows the splice")
	}
}

func TestEndHazard(t *testing.T) {
	cfg := mock.FreeConfig()
	cfg.EndHazard = 0.1
	b := open(t, cfg)
	var reqs []workertest.Request
	for seed := range uint64(40) {
		reqs = append(reqs, workertest.Request{Prompt: []int32{65}, MaxNew: 200, Sampling: schema.Sampling{Seed: seed}, IgnoreEOS: seed%2 == 0})
	}
	total, ended := 0, 0
	for i, out := range workertest.Generate(t, b, reqs) {
		if reqs[i].IgnoreEOS {
			if len(out) != 200 {
				t.Errorf("answer that ignores its end has %d tokens", len(out))
			}
			continue
		}
		total += len(out)
		if out[len(out)-1] == mock.TurnEnd {
			ended++
		}
	}
	if ended != 20 || total < 20*4 || total > 20*25 { // ten tokens each on average
		t.Errorf("%d of 20 answers ended, %d tokens in all", ended, total)
	}
}

func TestStepsTakeTheirTime(t *testing.T) {
	cfg := mock.FreeConfig()
	cfg.StepBase, cfg.StepSequence, cfg.PrefillRate = 200*time.Microsecond, 50*time.Microsecond, 1e6
	b := open(t, cfg)
	if got := cfg.Cost(&batch.Batch{Decodes: 2, PrefillTokens: 100}); got != 400*time.Microsecond {
		t.Fatalf("cost %v", got)
	}
	const steps = 100
	const most = steps * 600 * time.Microsecond
	best := time.Hour
	for n := 0; n < 5 || best > most && n < 200; n++ { // other work on the machine only makes it longer, and leaves gaps
		start := time.Now()
		workertest.Generate(t, b, []workertest.Request{{Prompt: []int32{1}, MaxNew: steps + 1}})
		took := time.Since(start)
		if least := steps*250*time.Microsecond - 5*time.Millisecond; took < least {
			t.Fatalf("%d steps took %v, at least %v is right", steps, took, least)
		}
		best = min(best, took)
	}
	t.Logf("%d steps of 250µs took %v", steps, best)
	if best > most {
		t.Errorf("%d steps of 250µs took %v at best", steps, best)
	}
}

// A profile takes the place of the three figures, and the one of that name says what they say by default.
func TestProfileDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := mock.DefaultConfig()
		step := &batch.Batch{PrefillTokens: rapid.IntRange(0, 512).Draw(t, "prefill"), Decodes: rapid.IntRange(0, 64).Draw(t, "decodes"), ContextTokens: 999}
		stated := cfg.Cost(step)
		var err error
		if cfg.Profile, err = profile.Open("mock"); err != nil {
			t.Fatal(err)
		}
		if got := cfg.Cost(step); got != stated {
			t.Fatalf("%d of prefill, %d decode: %v by the profile, %v as stated", step.PrefillTokens, step.Decodes, got, stated)
		}
	})
	cfg := mock.FreeConfig()
	cfg.Profile = &profile.Profile{Name: "broken"}
	if _, err := mock.New(cfg); !errors.Is(err, mock.ErrConfig) || !errors.Is(err, profile.ErrProfile) {
		t.Error(err)
	}
}

func TestFaults(t *testing.T) {
	cfg := mock.FreeConfig()
	boom := errors.New("boom")
	var fail error
	cfg.FailStep = func(*batch.Batch) error { return fail }
	cfg.FailRow = func(r schema.RequestID, pos int32) error {
		if r == "bad" && pos == 4 {
			return boom
		}
		return nil
	}
	b := open(t, cfg)
	for seq, r := range []schema.RequestID{"good", "bad"} {
		if err := b.Start(batch.SeqID(seq), &worker.Start{Request: r, Prompt: []int32{1, 2, 3, 4}}); err != nil {
			t.Fatal(err)
		}
	}
	step := batch.Batch{Entries: []batch.Entry{
		{Seq: 0, Tokens: []int32{1, 2, 3, 4}, Sample: true, Prefill: true}, {Seq: 1, Tokens: []int32{1, 2, 3, 4}, Sample: true, Prefill: true},
	}}
	rows := make([]batch.Row, 2)
	fail = boom
	if err := b.Step(&step, rows); !errors.Is(err, boom) || b.Cells() != 0 {
		t.Fatalf("failed step: %v, %d cells", err, b.Cells())
	}
	fail = nil
	if err := b.Step(&step, rows); err != nil || rows[0].Err != nil || !errors.Is(rows[1].Err, boom) {
		t.Fatalf("step: %v, %+v", err, rows)
	}
}

// A step keeps to what Start was told: its tokens, where they end, and what they come after.
func TestStepsFollowTheirStart(t *testing.T) {
	b := open(t, mock.FreeConfig())
	start := func(seq batch.SeqID, prompt, output []int32) {
		t.Helper()
		if err := b.Start(seq, &worker.Start{Prompt: prompt, Output: output}); err != nil {
			t.Fatal(err)
		}
	}
	step := func(seq batch.SeqID, pos int32, prefill bool, tokens ...int32) error {
		return b.Step(&batch.Batch{Entries: []batch.Entry{{Seq: seq, Pos: pos, Tokens: tokens, Prefill: prefill, Sample: true}}}, make([]batch.Row, 1))
	}
	start(0, []int32{1, 2}, []int32{3, 4})
	for _, c := range []struct {
		name    string
		pos     int32
		prefill bool
		tokens  []int32
	}{
		{"prompt as a decode", 0, false, []int32{1}},
		{"another prompt", 0, true, []int32{1, 3}},
		{"another output", 0, true, []int32{1, 2, 4}},
		{"more than there is", 0, true, []int32{1, 2, 3, 4, 5}},
	} {
		if err := step(0, c.pos, c.prefill, c.tokens...); !errors.Is(err, mock.ErrStep) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := step(0, 0, true, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if err := step(0, 3, false, 4); !errors.Is(err, mock.ErrStep) {
		t.Errorf("the last of the output as a decode: %v", err)
	}
	if err := step(0, 3, true, 4); err != nil {
		t.Fatal(err)
	}
	if err := step(0, 4, true, 9); !errors.Is(err, mock.ErrStep) {
		t.Errorf("a decode as a prefill: %v", err)
	}
	if err := step(0, 4, false, 9, 9); !errors.Is(err, mock.ErrStep) {
		t.Errorf("two decodes at once: %v", err)
	}
	if err := step(0, 4, false, 9); err != nil {
		t.Fatal(err)
	}
	if err := b.Apply(batch.Move{Kind: batch.MoveCopy, Src: 0, Dst: 1, Tokens: 3}); err != nil {
		t.Fatal(err)
	}
	start(1, []int32{1, 2, 7, 8}, nil)
	if err := step(1, 3, true, 8); !errors.Is(err, mock.ErrStep) {
		t.Errorf("the cells of another: %v", err)
	}
	start(1, []int32{1, 2, 3, 8}, nil)
	if err := step(1, 3, true, 8); err != nil {
		t.Error(err)
	}
}

func TestConfigNamesTheKey(t *testing.T) {
	cfg := mock.DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	cfg.EndHazard = 1
	if _, err := mock.New(cfg); !errors.Is(err, mock.ErrConfig) {
		t.Fatal(err)
	}
}

func TestTextComesBackFromItsTokens(t *testing.T) {
	var tok mock.Tokenizer
	text := func(ids []int32) string {
		var b []byte
		for _, id := range ids {
			var err error
			if b, err = tok.AppendPiece(b, id, true); err != nil {
				t.Fatal(err)
			}
		}
		return string(b)
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`( [a-z]{4}|<\|im_(end|start)\|>|[ a-z]){0,20}`)).Draw(rt, "text")
		for _, special := range []bool{false, true} {
			ids, err := tok.Tokenize(s, true, special)
			if err != nil || text(ids) != s {
				rt.Fatalf("%q comes back as %q, %v", s, text(ids), err)
			}
		}
		// Words are the tokens that are generated: they come back as themselves.
		ids := rapid.SliceOf(rapid.Int32Range(259, int32(mock.Vocab)-1)).Draw(rt, "ids")
		if again, err := tok.Tokenize(text(ids), false, false); err != nil || !slices.Equal(again, ids) {
			rt.Fatalf("%v comes back as %v, %v", ids, again, err)
		}
	})
	ids, err := tok.Tokenize("<|im_end|> kato", false, true)
	if err != nil || len(ids) != 2 || ids[0] != mock.TurnEnd || !tok.IsEOG(ids[0]) {
		t.Fatalf("%v, %v", ids, err)
	}
	if out, err := tok.AppendPiece(nil, mock.TurnEnd, false); err != nil || len(out) != 0 {
		t.Fatalf("a client sees %q, %v", out, err)
	}
	for _, id := range []int32{-1, int32(mock.Vocab)} {
		if _, err := tok.AppendPiece(nil, id, true); !errors.Is(err, mock.ErrToken) {
			t.Errorf("piece of %d: %v", id, err)
		}
	}
}

// A step of 24 sequences at no cost: what the engine itself takes.
//
//	go test -bench Step24 -benchmem ./worker/mock
func BenchmarkStep24(b *testing.B) {
	m := open(b, mock.FreeConfig())
	step := batch.Batch{Decodes: 24, Entries: make([]batch.Entry, 24)}
	rows := make([]batch.Row, 24)
	prompt, last := []int32{300}, make([]int32, 24)
	b.ReportAllocs()
	for pos := int32(0); b.Loop(); pos = (pos + 1) % 1000 {
		for i := range step.Entries {
			e := &step.Entries[i]
			if *e = (batch.Entry{Seq: batch.SeqID(i), Pos: pos, Tokens: prompt, Sample: true, Prefill: true}); pos > 0 {
				last[i] = rows[i].Token
				e.Tokens, e.Prefill = last[i:i+1], false
				continue
			}
			if err := m.Apply(batch.Move{Kind: batch.MoveTrim, Dst: e.Seq}); err != nil {
				b.Fatal(err)
			}
			if err := m.Start(e.Seq, &worker.Start{Prompt: prompt, IgnoreEOS: true}); err != nil {
				b.Fatal(err)
			}
		}
		if err := m.Step(&step, rows); err != nil {
			b.Fatal(err)
		}
	}
}
