package services

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/schema"
)

var update = flag.Bool("update", false, "write what is shown into testdata instead of comparing")

// Ids of the tests' requests, which arrived at explained.
const (
	idServed  schema.RequestID = "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01"
	idRefused schema.RequestID = "0199c5d2-7a32-7f00-8d2c-91b3a4c7d002"
)

var explained = time.Date(2026, 4, 5, 1, 45, 0, 123e6, time.UTC)

const ms = time.Millisecond

// story makes events of a request, at times since its arrival.
type story struct {
	id     schema.RequestID
	events []*schema.Event
}

func (s *story) add(at time.Duration, typ schema.Type, change func(*schema.Event)) {
	e := &schema.Event{V: schema.Version, Type: typ, Time: explained.Add(at).UnixNano(), Source: "ing-7c4e", Request: s.id, Pool: "default", Model: "qwen2.5-0.5b-instruct",
		Tenant: "acme", Ingress: "ing-7c4e", RequestSeq: 9}
	if change != nil {
		change(e)
	}
	s.events = append(s.events, e)
}

func features() []float32 {
	x := make([]float32, feature.Count)
	for i := range x {
		x[i] = float32(i) + 0.5
	}
	x[feature.CachedTokens] = 384
	return x
}

func decides(rule string) func(*schema.Event) {
	return func(e *schema.Event) {
		e.Decision, e.Artifact, e.Predicted, e.PredictedTTFT, e.Bound, e.BoundLevel = rule, strings.Repeat("3f9a1c07", 8), 1100*ms, 52*ms, 1600*ms, 0.95
		e.Meet, e.Gain, e.Cost, e.Lambda, e.Propensity, e.Physics, e.Features = 0.97, 0.94, 31*ms, 2.5, 1, 1050*ms, features()
		e.TTFTBudget, e.PromptTokens, e.MaxTokens = 500*ms, 500, 256
	}
}

// served is a request that was preempted, lost its worker, and was served by another.
func served() *story {
	s := &story{id: idServed}
	s.add(0, schema.Received, func(e *schema.Event) {
		e.ClientRequest, e.Kind, e.Class, e.Stream, e.Budget, e.PromptTokens, e.MaxTokens = "mine-1", schema.KindChat, schema.Guaranteed, true, 2*time.Second, 500, 256
	})
	s.add(3*ms, schema.Admitted, func(e *schema.Event) {
		decides("best_effort_price")(e)
		e.ClientRequest, e.Class, e.Budget = "mine-1", schema.BestEffort, 1997*ms
	})
	s.add(4*ms, schema.Accepted, func(e *schema.Event) { e.Source = "sched-1" })
	at := func(t time.Duration, typ schema.Type, attempt uint32, worker string, change func(*schema.Event)) {
		s.add(t, typ, func(e *schema.Event) {
			e.Source, e.Attempt, e.Worker = worker, attempt, schema.WorkerID(worker)
			if change != nil {
				change(e)
			}
		})
	}
	at(5*ms, schema.Dispatched, 1, "w-1", func(e *schema.Event) { e.QueueDepth = 4 })
	at(6*ms, schema.PrefillStarted, 1, "w-1", nil)
	at(60*ms, schema.FirstToken, 1, "w-1", func(e *schema.Event) { e.CachedTokens, e.OutputTokens = 128, 1 })
	at(300*ms, schema.Preempted, 1, "w-1", func(e *schema.Event) { e.OutputTokens = 17 })
	at(700*ms, schema.Sealed, 1, "w-1", nil)
	at(705*ms, schema.Dispatched, 2, "w-2", nil)
	at(710*ms, schema.PrefillStarted, 2, "w-2", nil)
	at(1690*ms, schema.Finished, 2, "w-2", func(e *schema.Event) { e.Reason, e.OutputTokens, e.CachedTokens = "length", 256, 96 })
	at(1695*ms, schema.Finished, 1, "w-1", func(e *schema.Event) { e.Reason, e.OutputTokens = "stop", 99 }) // a lost worker's late word
	s.add(1700*ms, schema.Delivered, func(e *schema.Event) {
		e.Reason, e.E2E, e.TTFT, e.OutputTokens = string(schema.OutcomeComplete), 1700*ms, 62*ms, 256
	})
	return s
}

func refused() *story {
	s := &story{id: idRefused}
	s.add(0, schema.Received, func(e *schema.Event) { e.ClientRequest, e.Kind, e.Budget = "again", schema.KindCompletion, 900*ms })
	s.add(2*ms, schema.Refused, func(e *schema.Event) {
		decides("infeasible")(e)
		e.ClientRequest, e.Reason, e.RetryAfter, e.Budget, e.Propensity = "again", string(schema.RefusedInfeasible), 30*time.Second, 900*ms, 0
	})
	return s
}

func explain(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errOut := run(append([]string{"explain"}, args...)...)
	if status != 0 {
		t.Fatalf("%q: %d, %s", args, status, errOut)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) > screenLines {
		t.Errorf("%q: %d lines", args, len(lines))
	}
	for _, l := range lines {
		if utf8.RuneCountInString(l) > screenColumns {
			t.Errorf("%q: %d columns: %s", args, utf8.RuneCountInString(l), l)
		}
	}
	return out
}

// What is shown of a request, on one screen.
func TestExplain(t *testing.T) {
	log := eventLog(t, append(served().events, refused().events...))
	checkGolden(t, "explain_served.txt", explain(t, string(idServed), "--from", log))
	checkGolden(t, "explain_refused.txt", explain(t, string(idRefused), "--from", log))
	if got := explain(t, "mine-1", "--from", log); got != explain(t, strings.ToUpper(string(idServed)), "--from", log) {
		t.Errorf("by the client's id:\n%s", got)
	}
	var a account
	runJSON(t, &a, "explain", string(idServed), "--from", log, "--json")
	if a.Request != idServed || a.Decision == nil || len(a.Decision.Features) != feature.Count || a.Decision.Features[feature.Pace].Unit != "steps/token" ||
		a.Decision.Why == "" || len(a.Events) != 13 || a.Events[7].Since != 700*ms || a.End.Attempts != 2 || a.End.Preemptions != 1 || a.End.OutputTokens != 256 ||
		a.End.CachedTokens != 96 || a.End.Reason != "length" || a.End.Worker != "w-2" || a.End.Bound != verdictMissed || a.End.E2EVerdict != verdictMet ||
		a.End.TTFTVerdict != verdictMet || a.Asked != schema.Guaranteed || a.Served != schema.BestEffort {
		t.Errorf("%+v", a)
	}
}

// checkGolden compares text with a file of testdata; -update writes it.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// Every form of a file says the same.
func TestExplainForms(t *testing.T) {
	events := slices.Concat(refused().events, served().events)
	log := eventLog(t, events)
	want := explain(t, string(idServed), "--from", log)
	var bare, rows strings.Builder
	rows.WriteString("[\n")
	for i := range events {
		body, err := schema.Encode(events[i])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&bare, "%s\n", body)
		last := len(events) - 1 - i // rows of a table, in no order
		if body, err = schema.Encode(events[last]); err != nil {
			t.Fatal(err)
		}
		quoted, err := json.Marshal(string(body))
		if err != nil {
			t.Fatal(err)
		}
		comma := ","
		if last == 0 {
			comma = ""
		}
		fmt.Fprintf(&rows, `{"seq":%d,"type":"x","payload":%s}%s`+"\n", last+1, quoted, comma)
	}
	rows.WriteString("]\n")
	for name, text := range map[string]string{"bare": bare.String(), "rows": rows.String()} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{string(idServed), "mine-1"} {
			if got := explain(t, id, "--from", path); got != want {
				t.Errorf("%s: %s: got\n%s", name, id, got)
			}
		}
	}
}

func TestExplainErrors(t *testing.T) {
	dir := t.TempDir()
	twice := refused()
	other := refused()
	other.id = idServed
	for _, e := range other.events {
		e.Request = idServed
	}
	log := eventLog(t, append(twice.events, other.events...))
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{\"seq\":1}\nno\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want []string
		args []string
	}{
		{[]string{"visible ASCII"}, []string{""}},
		{[]string{"visible ASCII"}, []string{"two words", "--from", log}},
		{[]string{"visible ASCII"}, []string{strings.Repeat("x", schema.MaxClientRequest+1), "--from", log}},
		{[]string{"no such request", "nobody"}, []string{"nobody", "--from", log}},
		{[]string{"no such request", "0199c5d2-0000"}, []string{"0199c5d2-0000-7c4e-9b1a-2f6d5e8c1a01", "--from", log}},
		{[]string{"several requests", string(idServed), string(idRefused), "2026-04-05 01:45:00"}, []string{"again", "--from", log}},
		{[]string{"no such file"}, []string{"x", "--from", filepath.Join(dir, "none")}},
		{[]string{"broken:1", "not a line of events"}, []string{"x", "--from", broken}},
		{[]string{"cadence up"}, []string{"x", "--data-dir", dir}},
		{[]string{"does not answer"}, []string{"x", "--clickhouse-url", "http://user:hush@" + nobody(t)}},
	} {
		status, out, errOut := run(append([]string{"explain"}, c.args...)...)
		if status != 1 || out != "" || strings.Contains(errOut, "hush") {
			t.Errorf("%q: %d, %s, %s", c.args, status, out, errOut)
		}
		for _, want := range c.want {
			if !strings.Contains(errOut, want) {
				t.Errorf("%q: no %q in %s", c.args, want, errOut)
			}
		}
	}
}

// A client's id may be a UUID that is no request's.
type twoSources struct{ client string }

func (s twoSources) RequestEvents(_ context.Context, id schema.RequestID) ([]schema.Stored, error) {
	if id != idServed {
		return nil, nil
	}
	return []schema.Stored{{Event: *served().events[0]}}, nil
}

func (s twoSources) ClientRequests(_ context.Context, client string) ([]analytics.ClientRequest, error) {
	if client != s.client {
		return nil, nil
	}
	return []analytics.ClientRequest{{Request: idServed}}, nil
}

func TestFindRequestByAClientsUUID(t *testing.T) {
	const client = "6F9619FF-8B86-4011-B42D-00C04FC964FF"
	events, err := findRequest(t.Context(), twoSources{client}, client)
	if err != nil || len(events) != 1 || events[0].Request != idServed {
		t.Errorf("%+v, %v", events, err)
	}
	if _, err := findRequest(t.Context(), twoSources{"other"}, client); !errors.Is(err, ErrNoRequest) {
		t.Errorf("%v", err)
	}
}

// Every rule and every reason has its sentence, and no rule has one for what it never does.
func TestEveryReasonHasASentence(t *testing.T) {
	neverRefuse := map[admission.Reason]bool{admission.Idle: true, admission.Exploration: true, admission.Open: true}
	neverAdmit := map[admission.Reason]bool{admission.Infeasible: true, admission.ProtectsGuaranteed: true, admission.Capacity: true, admission.TenantCapacity: true}
	n := 0
	for r := admission.NoReason + 1; r.String() != "unknown"; r++ {
		n++
		if got := whyAdmitted[r.String()] != ""; got == neverAdmit[r] {
			t.Errorf("%s: a sentence for the admitted: %v", r, got)
		}
		if got := whyRefused[r.String()] != ""; got == neverRefuse[r] {
			t.Errorf("%s: a sentence for the refused: %v", r, got)
		}
		if !neverRefuse[r] {
			if got := why(&decision{Rule: r.String(), Refusal: r.Refusal()}); got != whyRefused[r.String()] {
				t.Errorf("%s: %s", r, got)
			}
		}
	}
	if n < 13 {
		t.Errorf("%d reasons", n)
	}
	for _, r := range []schema.RefusalReason{schema.RefusedCapacity, schema.RefusedDraining, schema.RefusedNoWorker, schema.RefusedUnavailable,
		schema.RefusedInfeasible, schema.RefusedSLO} {
		if got := why(&decision{Refusal: r}); got == "" || got != whyNot[r] {
			t.Errorf("%s: %s", r, got)
		}
	}
	for _, text := range slices.Concat(slices.Collect(maps.Values(whyAdmitted)), slices.Collect(maps.Values(whyRefused)), slices.Collect(maps.Values(whyNot))) {
		if n := utf8.RuneCountInString(text); n > screenColumns-labelColumns {
			t.Errorf("%d columns: %s", n, text)
		}
	}
	for want, d := range map[string]decision{
		"the rule had let it in, but it could not be stored": {Rule: "idle", Refusal: schema.RefusedUnavailable},
		"the rule had let it in, but a limit":                {Rule: "best_effort_price", Refusal: schema.RefusedCapacity},
		"nothing could be predicted":                         {Rule: "cold_start", Admitted: true},
		"no rule was asked":                                  {Admitted: true},
		"a rule that this version does not know":             {Rule: "dice", Admitted: true},
		"a reason that this version does not know":           {Refusal: "dice"},
	} {
		if got := why(&d); !strings.Contains(got, want) {
			t.Errorf("%+v: %s", d, got)
		}
	}
}

// Verdicts on bound and objectives, by how a request ended.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		outcome         schema.Outcome
		e2e, ttft       time.Duration
		bound, all, one string
	}{
		"in time":         {schema.OutcomeComplete, 1500 * ms, 400 * ms, verdictMet, verdictMet, verdictMet},
		"to the point":    {schema.OutcomeComplete, 1600 * ms, 500 * ms, verdictMet, verdictMet, verdictMet},
		"late":            {schema.OutcomeComplete, 2100 * ms, 600 * ms, verdictMissed, verdictMissed, verdictMissed},
		"left early":      {schema.OutcomeDisconnected, 100 * ms, 0, verdictUnknown, verdictUnknown, verdictUnknown},
		"left in between": {schema.OutcomeDisconnected, 1800 * ms, 400 * ms, verdictMissed, verdictUnknown, verdictMet},
		"an error":        {schema.OutcomeError, 100 * ms, 0, verdictUnknown, verdictMissed, verdictMissed},
		"not ended":       {"", 0, 0, verdictUnknown, verdictUnknown, verdictUnknown},
	} {
		s := served()
		s.events = s.events[:3]
		if c.outcome != "" {
			s.add(c.e2e, schema.Delivered, func(e *schema.Event) { e.Reason, e.E2E, e.TTFT = string(c.outcome), c.e2e, c.ttft })
		}
		a := newAccount(stored(s.events))
		if a.End.Bound != c.bound || a.End.E2EVerdict != c.all || a.End.TTFTVerdict != c.one {
			t.Errorf("%s: %+v", name, a.End)
		}
	}
}

func stored(events []*schema.Event) []schema.Stored {
	var all []schema.Stored
	for i, e := range events {
		all = append(all, schema.Stored{Event: *e, Seq: uint64(i + 1)})
	}
	return all
}

// However much happened, and whatever a message holds, it is one screen. Events that came twice count once.
func TestExplainFitsAScreen(t *testing.T) {
	s := served()
	end := s.events[len(s.events)-1]
	s.events = s.events[:7]
	for i := range 100 {
		s.add(time.Duration(400+i)*ms, schema.Preempted, func(e *schema.Event) {
			e.Attempt, e.Worker, e.Ordinal, e.Message = 1, "w-1", uint32(i+1), "\x1b[2J\n"+strings.Repeat("語", 200)
		})
	}
	s.events = append(s.events, s.events[20], end)
	a := newAccount(stored(s.events))
	text := a.text()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > screenLines || a.End.Preemptions != 101 || strings.Contains(text, "\x1b") || !strings.Contains(text, " more (--json has all)") ||
		!strings.Contains(text, "delivered") {
		t.Errorf("%d lines, %d preemptions\n%s", len(lines), a.End.Preemptions, text)
	}
	shown := 0
	for _, l := range lines {
		var more int
		if _, after, ok := strings.Cut(l, "…"); ok && strings.HasSuffix(after, "more (--json has all)") {
			if _, err := fmt.Sscanf(after, "%d", &more); err != nil {
				t.Fatal(err)
			}
			shown += more
		} else if strings.Contains(l, "█") || strings.Contains(l, "▏") {
			shown++
		}
	}
	if shown != len(a.Events) || len(a.Events) != 108 {
		t.Errorf("%d of %d events\n%s", shown, len(a.Events), text)
	}
}

// What little is known is shown without a fault: one event of any type, features of another version, no arrival.
func TestExplainOfParts(t *testing.T) {
	for _, e := range append(served().events, refused().events...) {
		a := newAccount(stored([]*schema.Event{e}))
		if text := a.text(); !strings.Contains(text, string(e.Request)) || !strings.Contains(text, string(e.Type)) {
			t.Errorf("%s:\n%s", e.Type, text)
		}
	}
	s := served()
	s.events = s.events[1:]
	s.events[0].Features = make([]float32, 30)
	a := newAccount(stored(s.events))
	if text := a.text(); !strings.Contains(text, "feature_0") || !strings.Contains(text, "and 12 more") {
		t.Error(text)
	}
	if want := time.UnixMilli(0x0199c5d27a31).UTC(); !a.Arrived.Equal(want) {
		t.Errorf("arrived %s, want %s", a.Arrived, want)
	}
}
