package services

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/sim"
	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/cadence-slo/cadence/trainer/service"
	"github.com/cadence-slo/cadence/trainer/trainertest"
)

// eventLog writes events as the simulator does.
func eventLog(t *testing.T, events []*schema.Event) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	encoder := json.NewEncoder(f)
	for i, e := range events {
		body, err := schema.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := encoder.Encode(sim.Line{Seq: uint64(i + 1), StoredAt: e.Time, Event: body}); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// From an event log to a file, to a pool, and back: every command says what it did, in words and in JSON.
func TestTrainAndPredictor(t *testing.T) {
	log := eventLog(t, trainertest.Rounds(t, time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), 0, 4, 1))
	out := filepath.Join(t.TempDir(), "model.cad")
	train := []string{"train", "--from", "file", "--file", log, "--pool", trainertest.Pool, "--profile", "mock", "--min-rows", "300", "--group-rows", "100", "--level", "0.9"}
	var r service.Report
	runJSON(t, &r, append(train, "--out", out, "--json")...)
	if !r.Swap || r.Published || r.Rounds != 4 || r.Fingerprint != trainertest.Fingerprint || r.Source != "file" {
		t.Fatalf("%+v", r)
	}
	file, err := os.ReadFile(out)
	if err != nil || artifact.Digest(file) != r.Artifact {
		t.Fatalf("the file is %s: %v", artifact.Digest(file), err)
	}
	status, text, errOut := run("predictor", "show", out)
	if status != 0 || !strings.Contains(text, r.Artifact) || !strings.Contains(text, "guaranteed, load decile 10") {
		t.Errorf("show: %d, %s, %s", status, text, errOut)
	}
	runJSON(t, &r, append(train, "--champion", out, "--dry-run", "--json")...)
	if r.Running == nil || r.Running.Rows != r.Compared || r.Reason != "not_worse" {
		t.Errorf("with itself: %+v", r)
	}

	url := streamstest.Start(t).URL
	pool := []string{"--nats-url", url, "--pool", trainertest.Pool}
	status, text, errOut = run(append(train, "--nats-url", url)...)
	if status != 0 || !strings.Contains(text, "published: first") {
		t.Fatalf("train: %d, %s, %s", status, text, errOut)
	}
	// At another level the running model has no bounds.
	status, text, errOut = run(append(train, "--nats-url", url, "--level", "0.8")...)
	if status != 0 || !strings.Contains(text, "published: not_worse") {
		t.Fatalf("train again: %d, %s, %s", status, text, errOut)
	}
	var list []listed
	runJSON(t, &list, append([]string{"predictor", "list", "--json"}, pool...)...)
	if len(list) != 2 || !list[0].Current || list[1].Current || list[0].Reason != "not_worse" || list[1].Reason != "first" {
		t.Fatalf("%+v", list)
	}
	var s shown
	runJSON(t, &s, append([]string{"predictor", "show", "--json"}, pool...)...)
	if s.Artifact != list[0].Artifact || s.Trees == 0 || s.Header.Backend != trainertest.Fingerprint {
		t.Errorf("%+v", s)
	}
	status, text, errOut = run(append([]string{"predictor", "rollback", "--reason", "a test"}, pool...)...)
	if status != 0 || !strings.Contains(text, "back to "+list[1].Artifact) {
		t.Fatalf("rollback: %d, %s, %s", status, text, errOut)
	}
	status, text, _ = run(append([]string{"predictor", "list"}, pool...)...)
	if status != 0 || strings.Count(text, list[1].Artifact) != 2 || strings.Count(text, "rolled_back") != 1 {
		t.Errorf("list: %d, %s", status, text)
	}
	status, text, errOut = run(append([]string{"predictor", "rollback", "--to", "none"}, pool...)...)
	if status != 0 || !strings.Contains(text, "the physics alone") {
		t.Fatalf("to none: %d, %s, %s", status, text, errOut)
	}
	if status, _, errOut = run(append([]string{"predictor", "rollback", "--to", "none"}, pool...)...); status != 1 || !strings.Contains(errOut, "predictor list") {
		t.Errorf("to none again: %d, %s", status, errOut)
	}
}

// What cannot be done is said, with the flag or with how much is there of how much.
func TestTrainErrors(t *testing.T) {
	few := eventLog(t, trainertest.Rounds(t, time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), 0, 3, 1))
	blind := eventLog(t, []*schema.Event{{Type: schema.WorkerUp, Time: 1, Source: "w", Worker: "w", Pool: "p"}})
	for line, want := range map[string]string{
		"train":                                     "nats-url is empty",
		"train --from stream --dry-run --pool p":    "nats-url is empty",
		"train --from file --dry-run":               "file is",
		"train --file x --dry-run":                  "file is",
		"train --dry-run --level 2":                 "level",
		"train --dry-run --data-dir " + t.TempDir(): "cadence up",
		"train --from file --dry-run --pool p --profile mock --file " + few:    "3 rounds of 10 minutes, it takes 4",
		"train --from file --dry-run --pool p --profile mock --file " + blind:  "no rows",
		"train --from file --dry-run --round-minutes 1 --pool p --file " + few: "profile",
		"train --from file --dry-run --file " + t.TempDir():                    "directory",
		"train --from file --dry-run --champion /dev/null --file " + few:       "artifact",
		"train --nats-url nats://127.0.0.1:1 --champion x --from stream":       "champion",
		"predictor list": "nats-url",
		"predictor show " + filepath.Join(t.TempDir(), "x"):                                              "nats-url",
		"trainer --nats-url nats://127.0.0.1:1 --min-new 0":                                              "min_new",
		"predictor rollback --nats-url nats://127.0.0.1:1 --pool a.b":                                    "pool",
		"train --from file --dry-run --round-minutes 1 --pool p --profile no-such-profile --file " + few: "no-such-profile",
	} {
		status, _, errOut := run(strings.Fields(line)...)
		if status == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d, %s, want %q", line, status, errOut, want)
		}
	}
}
