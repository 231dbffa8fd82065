package services

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/pipeline"
	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/stat"
	"github.com/cadence-slo/cadence/bench/workload"
)

// wordy is a server that takes text alone and answers every third request with 503. Requests that it takes are counted.
func wordy(t *testing.T, taken *atomic.Int64) string {
	t.Helper()
	var n atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"object":"list","data":[{"id":"small"}]}`)
			return
		}
		var body struct {
			Model  string `json:"model"`
			Prompt any    `json:"prompt"`
			Max    int    `json:"max_tokens"`
		}
		if b, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(b, &body) != nil {
			t.Errorf("%s, %v", b, err)
		}
		if r.Header.Get("Authorization") != "Bearer key" || body.Model != "small" {
			t.Errorf("%v, %+v", r.Header, body)
		}
		if text, ok := body.Prompt.(string); !ok || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz ") != "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"message":"prompt: expected a string"}}`)
			return
		}
		if n.Add(1)%3 == 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		taken.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", body.Max)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// cadence load finds a server's model and the form that it takes, tells what became of every request, and leaves the same in
// its records.
func TestLoad(t *testing.T) {
	var taken atomic.Int64
	url, dir := wordy(t, &taken), filepath.Join(t.TempDir(), "runs", "a")
	status, out, errOut := run("load", "--url", url, "--api-key", "key", "--rate", "100", "--length", "500ms", "--arrivals", "constant", "--warmup", "100ms",
		"--slo", "ttft=1h", "--lag-budget", "1h", "--out", dir, "--arm", "mine", "--json")
	var got struct {
		Run     record.Run
		Summary stat.Summary
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 {
		t.Fatalf("%d, %s, %s, %v", status, out, errOut, err)
	}
	r, s := got.Run, got.Summary
	if r.ID != "a" || r.Arm != "mine" || r.On != url || r.Model != "small" || r.Rate != 100 || r.Arrivals != "constant" || r.Workload != "seed" || r.SLOs[""].TTFT != time.Hour ||
		!r.Valid() || r.Partial || len(r.Machine) == 0 || s.Phases[record.Warmup] != 10 || s.Offered != 40 || s.Good != s.Outcomes[record.OK] || s.Good == 0 ||
		s.Good+s.Shed["http_503"] != 40 {
		t.Errorf("%s", out)
	}
	onDisk, err := record.Open(dir)
	if err != nil || onDisk.ID != "a" || onDisk.Seed != r.Seed {
		t.Errorf("%+v, %v", onDisk, err)
	}
	rows, err := record.Requests(dir)
	if err != nil || len(rows) != 50 || rows[7].Index != 7 || rows[7].CapTokens == 0 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	// A run that cannot begin leaves what an earlier one left.
	for _, flag := range []string{"--warmup=2m", "--metrics=127.0.0.1:1"} {
		if status, _, errOut = run("load", "--url", url, "--api-key", "key", "--out", dir, flag); status != 1 || errOut == "" {
			t.Errorf("%s: %d, %s", flag, status, errOut)
		}
		if again, err := record.Open(dir); err != nil || !again.Time.Equal(onDisk.Time) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if status, out, _ = run("load", "--url", url, "--api-key", "key", "--rate", "50", "--length", "200ms", "--lag-budget", "1h"); status != 0 || !strings.Contains(out, "in time of all") ||
		!strings.Contains(out, "Shed: http_503") {
		t.Errorf("%d, %s", status, out)
	}
}

// A run that measured its generator alone, and wishes that cannot be met, end with status 1 and say why.
func TestLoadThatFails(t *testing.T) {
	var taken atomic.Int64
	url := wordy(t, &taken)
	for args, want := range map[string]string{
		"--lag-budget 1ns":            "the run is invalid",
		"--prompts ids":               "takes no token ids",
		"--arrivals sometimes":        "poisson, gamma",
		"--rate 0":                    "rate is 0",
		"--slo soon":                  "ttft, tpot or e2e",
		"--workload nobody":           "nobody",
		"--warmup 1m":                 "warmup",
		"--token-to 1":                "token-from and token-to",
		"--url http://127.0.0.1:1":    "asking for a model",
		"--url ftp://127.0.0.1:1":     "http://host:port",
		"--workload azure:/no/trace":  "/no/trace",
		"--workload requests:/no/dir": "/no/dir",
		"--workload requests:x?y=z":   "?pool=NAME",
	} {
		line := append([]string{"load", "--url", url, "--api-key", "key", "--rate", "100", "--length", "100ms"}, strings.Fields(args)...)
		if status, out, errOut := run(line...); status != 1 || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d, %s, %s", args, status, out, errOut)
		}
	}
}

// What a flag says of one class leaves the others what they have.
func TestObjectives(t *testing.T) {
	_, vocab, err := pipeline.MockModel()
	if err != nil {
		t.Fatal(err)
	}
	source, err := workload.OpenSource("elastic-mixed", vocab, 1)
	if err != nil {
		t.Fatal(err)
	}
	own := source.SLOs()
	if len(own) < 2 || own["gold"].E2E == 0 && own["gold"].TTFT == 0 {
		t.Fatalf("%v", own)
	}
	gold, every := record.SLO{E2E: 2 * time.Second}, record.SLO{TTFT: time.Second}
	for _, c := range []struct {
		flags []string
		want  func(class string) record.SLO
	}{
		{nil, func(class string) record.SLO { return own[class] }},
		{[]string{"gold:e2e=2s"}, func(class string) record.SLO {
			if class == "gold" {
				return gold
			}
			return own[class]
		}},
		{[]string{"gold:e2e=2s", "ttft=1s"}, func(class string) record.SLO {
			if class == "gold" {
				return gold
			}
			return every
		}},
	} {
		got, err := objectives(source, c.flags)
		if err != nil {
			t.Fatal(err)
		}
		run := record.Run{SLOs: got}
		for class := range own {
			if slo := run.SLO(&record.Request{Class: class}); slo != c.want(class) {
				t.Errorf("%v: %s has %+v, want %+v", c.flags, class, slo, c.want(class))
			}
		}
		if slo := run.SLO(&record.Request{Class: "unheard of"}); len(c.flags) == 2 && slo != every {
			t.Errorf("%v: %+v", c.flags, slo)
		}
	}
}
