package pipeline

import (
	"strings"
	"testing"
)

func TestCounters(t *testing.T) {
	const text = `# TYPE cadence_worker_prompt_tokens_total counter
cadence_worker_prompt_tokens_total{worker="a"} 1000
cadence_worker_prompt_tokens_total{worker="b"} 24
cadence_worker_prompt_tokens_total_other 7
cadence_worker_cached_tokens_total 1e3
cadence_worker_preemptions_total 3
`
	got, err := parseCounters(strings.NewReader(text))
	if want := (Counters{Prompt: 1024, Cached: 1000, Preemptions: 3}); err != nil || got != want {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	if rest := got.Less(Counters{Prompt: 24, Cached: 1, Preemptions: 3}); rest != (Counters{Prompt: 1000, Cached: 999}) {
		t.Errorf("%+v", rest)
	}
	if _, err := parseCounters(strings.NewReader("cadence_worker_cached_tokens_total x\n")); err == nil {
		t.Error("a counter that is no number")
	}
}

func TestMockModel(t *testing.T) {
	m, vocab, err := MockModel()
	if err != nil || m.File != "mock" || len(vocab) == 0 {
		t.Fatalf("%+v, %d ids, %v", m, len(vocab), err)
	}
}
