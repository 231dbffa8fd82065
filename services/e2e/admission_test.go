package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// asked is what became of a request that was sent with headers.
type asked struct {
	status                   int
	decision, reason         string
	predicted, took          time.Duration
	retryAfter, outputTokens int
}

// ask sends a completion of so many tokens and waits for all of it.
func (s *site) ask(tokens int, headers ...string) (asked, error) {
	body := fmt.Sprintf(`{"model":"default","prompt":[1,2,3,4,5,6,7,8],"max_tokens":%d,"ignore_eos":true}`, tokens)
	q, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return asked{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	begin := time.Now()
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return asked{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return asked{}, err
	}
	var v struct {
		Error struct{ Reason string }
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return asked{}, fmt.Errorf("%s: %w", b, err)
	}
	ms, _ := strconv.Atoi(res.Header.Get("X-Cadence-Predicted-Ms"))
	after, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return asked{status: res.StatusCode, decision: res.Header.Get("X-Cadence-Decision"), reason: v.Error.Reason, predicted: time.Duration(ms) * time.Millisecond,
		took: time.Since(begin), retryAfter: after, outputTokens: v.Usage.CompletionTokens}, nil
}

// The engine's and the queue's own states reach the ingress, which predicts from them, refuses what would be late, and lets in all
// that has no objective.
func TestAdmission(t *testing.T) {
	s := startUp(t, "--no-analytics", "--backend", "mock", "--mock-step", "20ms", "--mock-step-per-seq", "0s", "--mock-prefill-rate", "0", "--sequences", "8",
		"--worker-max-batch", "4", "--reveal-prediction", "--explore-rate", "0")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const tokens, alone = 25, 25 * 20 * time.Millisecond
	eventually(t, startWithin, "a prediction", func() error {
		if a, err := s.ask(1); err != nil || a.predicted == 0 {
			return fmt.Errorf("%+v, %w", a, err)
		}
		return nil
	})
	blind, err := metric(s.url+"/metrics", "cadence_ingress_admission_blind_total")
	if err != nil {
		t.Fatal(err)
	}
	cold := func() bool {
		n, err := metric(s.url+"/metrics", "cadence_ingress_admission_cold")
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	for n := 0; cold(); n++ { // it learns from what ends
		if n == 100 {
			t.Fatal("400 answers teach nothing")
		}
		var four sync.WaitGroup
		for range 4 {
			four.Go(func() {
				if a, err := s.ask(tokens); err != nil || a.status != http.StatusOK || a.decision != "open" || a.outputTokens != tokens {
					t.Errorf("without an objective: %+v, %v", a, err)
				}
			})
		}
		four.Wait()
	}
	for range 3 {
		a, err := s.ask(tokens)
		if err != nil {
			t.Fatal(err)
		}
		if a.predicted < alone/2 || a.predicted > 2*max(alone, a.took) {
			t.Errorf("%v is predicted, it takes %v here and %v on a quiet machine", a.predicted, a.took, alone)
		}
	}
	a, err := s.ask(tokens, "X-SLO-E2E-Ms", "20")
	if err != nil || a.status != http.StatusServiceUnavailable || a.reason != "infeasible" || a.decision != "infeasible" || a.retryAfter < 1 {
		t.Errorf("hopeless: %+v, %v", a, err)
	}
	if a, err := s.ask(tokens, "X-SLO-E2E-Ms", "60000", "X-SLO-Class", "guaranteed"); err != nil || a.status != http.StatusOK || a.decision != "bound" {
		t.Errorf("guaranteed: %+v, %v", a, err)
	}
	// 200 at once, four at a time in half a second, within 4 s: most of them would be late.
	var wg sync.WaitGroup
	var mu sync.Mutex
	count := map[string]int{}
	for range 200 {
		wg.Go(func() {
			a, err := s.ask(tokens, "X-SLO-E2E-Ms", "4000")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusOK:
				count["served"]++
			case a.status == http.StatusServiceUnavailable && a.reason == "slo" && a.retryAfter >= 1:
				count["refused"]++
			default:
				count[fmt.Sprintf("%+v", a)]++
			}
		})
	}
	wg.Wait()
	if count["served"] < 8 || count["refused"] < 60 || count["served"]+count["refused"] != 200 {
		t.Errorf("%v", count)
	}
	eventually(t, 10*time.Second, "all have ended", func() error {
		if n, err := metric(s.url+"/metrics", "cadence_ingress_admission_open"); err != nil || n != 0 {
			return fmt.Errorf("%v open, %w", n, err)
		}
		return nil
	})
	if n, err := metric(s.url+"/metrics", "cadence_ingress_admission_blind_total"); err != nil || n > blind {
		t.Errorf("%v decisions were blind after the first, %v", n-blind, err)
	}
}
