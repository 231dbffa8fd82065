package schema

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// TestValidate breaks one rule of a valid body at a time. The error must be ErrInvalid and name the field.
func TestValidate(t *testing.T) {
	long := strings.Repeat("x", 65)
	nan := float32(math.NaN())
	cases := map[string][]struct {
		field string
		spoil func(Body)
	}{
		"request": {
			{"request_id", func(m Body) { m.(*Request).ID = "" }},
			{"request_id", func(m Body) { m.(*Request).ID = RequestID(strings.ToUpper(string(idA))) }},
			{"pool", func(m Body) { m.(*Request).Pool = "" }},
			{"pool", func(m Body) { m.(*Request).Pool = "a.b" }},
			{"tenant", func(m Body) { m.(*Request).Tenant = "*" }},
			{"tenant", func(m Body) { m.(*Request).Tenant = long }},
			{"ingress", func(m Body) { m.(*Request).Ingress = ">" }},
			{"kind", func(m Body) { m.(*Request).Kind = "" }},
			{"kind", func(m Body) { m.(*Request).Kind = "Chat" }},
			{"class", func(m Body) { m.(*Request).Class = "gold" }},
			{"prompt", func(m Body) { m.(*Request).Prompt = nil }},
			{"max_tokens", func(m Body) { m.(*Request).MaxTokens = 0 }},
			{"max_tokens", func(m Body) { m.(*Request).MaxTokens = -1 }},
			{"max_tokens", func(m Body) { m.(*Request).MaxTokens = math.MaxInt32 }},
			{"stop", func(m Body) { m.(*Request).Stop = make([]string, MaxStops+1) }},
			{"stop", func(m Body) { m.(*Request).Stop = []string{"a", ""} }},
			{"budget_ns", func(m Body) { m.(*Request).Budget = -1 }},
			{"grace_ns", func(m Body) { m.(*Request).Grace = -1 }},
			{"logprobs", func(m Body) { m.(*Request).Logprobs = -1 }},
			{"logprobs", func(m Body) { m.(*Request).Logprobs = MaxTopLogprobs + 2 }},
			{"grammar", func(m Body) { m.(*Request).Grammar = strings.Repeat("x", MaxGrammar+1) }},
			{"temperature", func(m Body) { m.(*Request).Sampling.Temperature = -0.1 }},
			{"temperature", func(m Body) { m.(*Request).Sampling.Temperature = 100.5 }},
			{"temperature", func(m Body) { m.(*Request).Sampling.Temperature = nan }},
			{"temperature", func(m Body) { m.(*Request).Sampling.Temperature = float32(math.Inf(1)) }},
			{"top_k", func(m Body) { m.(*Request).Sampling.TopK = -1 }},
			{"top_p", func(m Body) { m.(*Request).Sampling.TopP = 1.01 }},
			{"top_p", func(m Body) { m.(*Request).Sampling.TopP = -0.01 }},
			{"top_p", func(m Body) { m.(*Request).Sampling.TopP = nan }},
			{"min_p", func(m Body) { m.(*Request).Sampling.MinP = 1.01 }},
			{"min_p", func(m Body) { m.(*Request).Sampling.MinP = nan }},
			{"repetition_penalty", func(m Body) { m.(*Request).Sampling.RepetitionPenalty = -1 }},
			{"repetition_penalty", func(m Body) { m.(*Request).Sampling.RepetitionPenalty = nan }},
			{"presence_penalty", func(m Body) { m.(*Request).Sampling.PresencePenalty = -2.1 }},
			{"presence_penalty", func(m Body) { m.(*Request).Sampling.PresencePenalty = nan }},
			{"frequency_penalty", func(m Body) { m.(*Request).Sampling.FrequencyPenalty = 2.1 }},
			{"frequency_penalty", func(m Body) { m.(*Request).Sampling.FrequencyPenalty = nan }},
		},
		"chunk": {
			{"request_id", func(m Body) { m.(*Chunk).Request = "*" }},
			{"attempt", func(m Body) { m.(*Chunk).Attempt = 0 }},
			{"index", func(m Body) { m.(*Chunk).Index = -1 }},
			{"ids", func(m Body) { m.(*Chunk).IDs = nil }},
		},
		"chunk_logprobs": {
			{"logprobs", func(m Body) { m.(*Chunk).Logprobs.Chosen = nil }},
			{"logprobs", func(m Body) { m.(*Chunk).Logprobs.Chosen = make([]float32, 4) }},
			{"logprobs", func(m Body) { m.(*Chunk).Logprobs.Top = m.(*Chunk).Logprobs.Top[:3] }},
			{"logprobs", func(m Body) { m.(*Chunk).Logprobs.TopLogprobs = nil }},
			{"logprob", func(m Body) { m.(*Chunk).Logprobs.Chosen[0] = 0.5 }},
			{"logprob", func(m Body) { m.(*Chunk).Logprobs.Chosen[1] = -10000 }},
			{"logprob", func(m Body) { m.(*Chunk).Logprobs.TopLogprobs[1] = nan }},
		},
		"chunk_finish": {
			{"error", func(m Body) { m.(*Chunk).Error = &Error{Code: FailedEngine} }},
			{"finish.reason", func(m Body) { m.(*Chunk).Finish.Reason = "" }},
			{"output_tokens", func(m Body) { m.(*Chunk).Finish.OutputTokens = -1 }},
		},
		"seal_reply": {
			{"finish.reason", func(m Body) { m.(*SealReply).Finish = &Finish{} }},
			{"cached_tokens", func(m Body) { m.(*SealReply).Finish = &Finish{Reason: FinishStop, CachedTokens: -1} }},
		},
		"dispatch": {
			{"items[0].attempt", func(m Body) { m.(*Dispatch).Items[0].Attempt = 0 }},
			{"items[1].request", func(m Body) { m.(*Dispatch).Items[1].Request = nil }},
		},
		"cancel": {{"request_id", func(m Body) { m.(*Cancel).Request = "x" }}},
		"seal":   {{"request_id", func(m Body) { m.(*Seal).Request = "x" }}},
		"worker_state": {
			{"worker", func(m Body) { m.(*WorkerState).Worker = "a b" }},
			{"pool", func(m Body) { m.(*WorkerState).Pool = "" }},
			{"interval_ns", func(m Body) { m.(*WorkerState).Interval = 0 }},
			{"slots", func(m Body) { m.(*WorkerState).Slots = -1 }},
			{"page_tokens", func(m Body) { m.(*WorkerState).PageTokens = 0 }},
			{"kv_pages", func(m Body) { m.(*WorkerState).KVPages = -1 }},
			{"running", func(m Body) { m.(*WorkerState).Running = -1 }},
			{"kv_free_pages", func(m Body) { m.(*WorkerState).KVFreePages = -1 }},
		},
		"ingress_state": {
			{"ingress", func(m Body) { m.(*IngressState).Ingress = "" }},
			{"interval_ns", func(m Body) { m.(*IngressState).Interval = -1 }},
		},
		"step": {
			{"worker", func(m Body) { m.(*Step).Worker = "a.b" }},
			{"time_ns", func(m Body) { m.(*Step).Time = 0 }},
			{"duration_ns", func(m Body) { m.(*Step).Duration = -1 }},
		},
	}
	for name, list := range cases {
		for _, c := range list {
			t.Run(name+"/"+c.field, func(t *testing.T) {
				m := fixtures()[name]
				c.spoil(m)
				checkInvalid(t, m, c.field)
			})
		}
	}
}

// TestValidateEvent takes from each event type each field that its rules demand.
func TestValidateEvent(t *testing.T) {
	fields := []struct {
		need  need
		name  string
		spoil func(*Event)
	}{
		{needRequest, "request_id", func(e *Event) { e.Request = "" }},
		{needRequest, "request_id", func(e *Event) { e.Request = idA + "0" }},
		{needAttempt, "attempt", func(e *Event) { e.Attempt = 0 }},
		{needWorker, "worker", func(e *Event) { e.Worker = "" }},
		{needIngress, "ingress", func(e *Event) { e.Ingress = "a.b" }},
		{needPool, "pool", func(e *Event) { e.Pool = "" }},
		{needTenant, "tenant", func(e *Event) { e.Tenant = "" }},
		{needReason, "reason", func(e *Event) { e.Reason = "" }},
		{needRequestSeq, "request_seq", func(e *Event) { e.RequestSeq = 0 }},
		{needArtifact, "artifact", func(e *Event) { e.Artifact = "" }},
		{0, "time_ns", func(e *Event) { e.Time = 0 }},
		{0, "time_ns", func(e *Event) { e.Time = -1 }},
		{0, "source", func(e *Event) { e.Source = "" }},
		{0, "source", func(e *Event) { e.Source = "a\r\nNats-Rollup: all" }},
		{0, "client_request_id", func(e *Event) { e.ClientRequest = strings.Repeat("x", MaxClientRequest+1) }},
		{0, "grace_ns", func(e *Event) { e.Grace = -1 }},
		{0, "retry_after_ns", func(e *Event) { e.RetryAfter = -1 }},
		{0, "prompt_tokens", func(e *Event) { e.PromptTokens = -1 }},
		{0, "cached_tokens", func(e *Event) { e.CachedTokens = -1 }},
		{0, "max_tokens", func(e *Event) { e.MaxTokens = -1 }},
		{0, "output_tokens", func(e *Event) { e.OutputTokens = -1 }},
		{0, "resume_tokens", func(e *Event) { e.ResumeTokens = -1 }},
		{0, "queue_ns", func(e *Event) { e.QueueTime = -1 }},
		{0, "prefill_ns", func(e *Event) { e.PrefillTime = -1 }},
		{0, "decode_ns", func(e *Event) { e.DecodeTime = -1 }},
		{0, "ttft_ns", func(e *Event) { e.TTFT = -1 }},
		{0, "e2e_ns", func(e *Event) { e.E2E = -1 }},
		{0, "queue_depth", func(e *Event) { e.QueueDepth = -1 }},
		{0, "slots", func(e *Event) { e.Slots = -1 }},
		{0, "kv_pages", func(e *Event) { e.KVPages = math.MinInt32 }},
		{0, "context_tokens", func(e *Event) { e.ContextTokens = -1 }},
		{0, "type", func(e *Event) { e.Type = "" }},
		{0, "type", func(e *Event) { e.Type = "teleported" }},
	}
	var known need
	for _, typ := range Types {
		for _, f := range fields {
			known |= f.need
			e := eventFixture(typ)
			f.spoil(&e)
			if rules[typ]&f.need == f.need {
				checkInvalid(t, &e, f.name)
			} else if err := e.Validate(); err != nil {
				t.Errorf("%s without %s: %v", typ, f.name, err)
			}
		}
	}
	for typ, n := range rules {
		if n&^known != 0 {
			t.Errorf("%s demands a field that is not tested: %b", typ, n&^known)
		}
	}
}

// TestValidateAccepts keeps the edges of the rules open.
func TestValidateAccepts(t *testing.T) {
	accept := func(m Body) {
		t.Helper()
		if err := m.Validate(); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, m := range fixtures() {
		accept(m)
	}
	r := fixtures()["request"].(*Request)
	r.Stop = make([]string, MaxStops)
	for i := range r.Stop {
		r.Stop[i] = "x"
	}
	r.Class, r.Budget, r.Grace = "", 0, 0
	r.MaxTokens = math.MaxInt32 - int32(len(r.Prompt))
	r.Sampling = Sampling{Temperature: 100, TopP: 1, MinP: 1, RepetitionPenalty: 100, PresencePenalty: -2, FrequencyPenalty: 2}
	accept(r)
	if got := r.Peak(); got != math.MaxInt32 {
		t.Errorf("peak %d", got)
	}
	e := eventFixture(Dispatched)
	e.Budget, e.ClientRequest, e.Source = -1, strings.Repeat("x", MaxClientRequest), strings.Repeat("s", 64)
	accept(&e)
	// An ingress that never saw a chunk of the request ends it without an attempt.
	accept(&Chunk{Request: idA, Error: &Error{Code: FailedTimeout}})
	// The last token was sent before the end was known.
	accept(&Chunk{Request: idA, Attempt: 1, Index: 64, Finish: &Finish{Reason: FinishStop, OutputTokens: 64}})
	accept(&Dispatch{Items: []DispatchItem{{Attempt: 1, Budget: -1, Request: json.RawMessage(`{}`)}}})
}

func checkInvalid(t *testing.T, m Body, field string) {
	t.Helper()
	err := m.Validate()
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), field) {
		t.Errorf("%T: got %v, want ErrInvalid for %s", m, err, field)
	}
}

func TestTerminal(t *testing.T) {
	want := map[Type]bool{Refused: true, Finished: true, Failed: true, Cancelled: true}
	for _, typ := range Types {
		if typ.Terminal() != want[typ] {
			t.Errorf("%s: got %v", typ, typ.Terminal())
		}
	}
}
