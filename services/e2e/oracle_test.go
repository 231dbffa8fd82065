package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/worker/mock"
)

// job is a completion with everything that decides its text.
type job struct {
	prompt string
	seed   uint64
	tokens int // of the answer: the mock does not end earlier
}

// makeJobs makes jobs that differ in prompt, length and seed.
func makeJobs(n, least, most int) []job {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(most)))
	jobs := make([]job, n)
	for i := range jobs {
		var b strings.Builder
		fmt.Fprintf(&b, "job %d:", i)
		for range 1 + rng.IntN(60) {
			b.WriteString([]string{" kato", " mira", " the", " ünö", " 東京", " \U0001F600", "\n"}[rng.IntN(7)])
		}
		jobs[i] = job{prompt: b.String(), seed: uint64(rng.IntN(1 << 31)), tokens: least + rng.IntN(most-least+1)}
	}
	return jobs
}

// request is the call that asks for the job's answer as a stream.
func (j job) request(t testing.TB, clientID string) *load.Request {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"model": "mock", "prompt": j.prompt, "max_tokens": j.tokens, "seed": j.seed,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &load.Request{Path: "/v1/completions", Body: body, ClientID: clientID}
}

// answer is what the mock must say, by its own definition: the first splice tokens as attempt 1 makes them, the rest as
// attempt 2 goes on from there. A splice of j.tokens is an undisturbed answer.
func (j job) answer(t testing.TB, cfg mock.Config, splice int) string {
	t.Helper()
	prompt, err := mock.Tokenizer{}.Tokenize(j.prompt, true, true)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int32, 0, j.tokens)
	for len(out) < j.tokens {
		attempt := uint32(1)
		if len(out) >= splice {
			attempt = 2
		}
		out = append(out, mock.Next(cfg, j.seed, attempt, false, prompt, out))
	}
	return text(t, out)
}

// text is what the tokens of the mock say.
func text(t testing.TB, tokens []int32) string {
	t.Helper()
	var b []byte
	for _, id := range tokens {
		var err error
		if b, err = (mock.Tokenizer{}).AppendPiece(b, id, false); err != nil {
			t.Fatal(err)
		}
	}
	return string(b)
}

// complete checks that a record is a whole answer of a job.
func (j job) complete(r *load.Record) error {
	switch {
	case r.Outcome != load.OK:
		return fmt.Errorf("outcome %s, status %d, reason %q, error %q", r.Outcome, r.Status, r.Reason, r.Err)
	case r.Usage == nil || r.Usage.CompletionTokens != j.tokens:
		return fmt.Errorf("usage is %+v, want %d tokens", r.Usage, j.tokens)
	case r.Finish != "length":
		return fmt.Errorf("finish reason %q", r.Finish)
	}
	return nil
}

// firstDifference is the number of bytes that two texts have in common at their beginning, with what follows.
func firstDifference(got, want string) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	return fmt.Sprintf("equal for %d bytes, then %.40q instead of %.40q", n, got[n:], want[n:])
}
