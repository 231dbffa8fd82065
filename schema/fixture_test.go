package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// update writes what a test cannot find: wire fixtures that do not exist yet (an existing one is frozen: what was once
// written must be readable for ever), and the expected states of the fold's scenarios, whose diff is then reviewed.
//
//	go test ./schema -update
var update = flag.Bool("update", false, "write new wire fixtures and the states that fold scenarios expect")

const (
	idA RequestID = "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01"
	idB RequestID = "0199c5d2-7a32-7f00-8d2c-91b3a4c7d002"
)

// fixtures are the bodies of testdata/v1, by file name: every body type, every event type with all that its writer
// fills in, and the odd values that the common ones leave out.
func fixtures() map[string]Body {
	all := map[string]Body{
		"request": &Request{
			V: 1, ID: idA, Pool: "default", Model: "qwen2.5-0.5b-instruct", Tenant: "acme", Ingress: "ing-7c4e",
			Kind: KindChat, Class: Guaranteed, Received: 1_760_000_000_000_000_001,
			Prompt: Tokens{0, 127, 128, 16_383, 16_384, 151_935, 2_147_483_647}, MaxTokens: 256,
			Stop: []string{"\n\n", "</s>"}, IgnoreEOS: true,
			Sampling: Sampling{
				Temperature: 0.7, TopK: 40, TopP: 0.95, MinP: 0.05, RepetitionPenalty: 1.1, PresencePenalty: -0.5,
				FrequencyPenalty: 0.25, Seed: 18_446_744_073_709_551_615,
			},
			Budget: 2 * time.Second, Grace: 30 * time.Second,
		},
		"request_constrained": &Request{
			V: 1, ID: idB, Pool: "default", Tenant: "acme", Ingress: "ing-7c4e", Kind: KindChat, Prompt: Tokens{1}, MaxTokens: 1,
			Logprobs: 6, Grammar: "root ::= \"<\" [^\"]* \"\\n\"\n",
		},
		"request_least": &Request{
			V: 1, ID: idB, Pool: "default", Tenant: "acme", Ingress: "ing-7c4e", Kind: KindCompletion, Prompt: Tokens{1}, MaxTokens: 1,
		},
		"chunk": &Chunk{
			V: 1, Request: idA, Attempt: 1, Index: 17, IDs: Tokens{1234, 56_789}, Text: "caf\u00e9 <b>&amp;</b> \"日本\"\n\u2028",
		},
		"chunk_logprobs": &Chunk{
			V: 1, Request: idA, Attempt: 1, Index: 17, IDs: Tokens{1234, 56_789, 2}, Text: "ab", Finish: &Finish{Reason: FinishStop, OutputTokens: 20},
			Logprobs: &Logprobs{
				Chosen: []float32{-0.25, -12.5}, Top: Tokens{1234, 7, 8, 9},
				TopLogprobs: []float32{-0.25, -3.0000001e-7, 0, MinLogprob},
			},
		},
		"chunk_finish": &Chunk{
			V: 1, Request: idA, Attempt: 2, Index: 63, IDs: Tokens{2}, Text: ".",
			Finish: &Finish{Reason: FinishStop, PromptTokens: 500, CachedTokens: 128, OutputTokens: 64},
		},
		"chunk_error": &Chunk{
			V: 1, Request: idA, Attempt: 1, Index: 12, Error: &Error{Code: FailedEngine, Message: "decode returned -1"},
		},
		"dispatch": &Dispatch{
			V: 1, Pool: "default", Epoch: 4711, Items: []DispatchItem{
				{Attempt: 2, Budget: 1500 * time.Millisecond, Resume: Tokens{9, 8, 7}, Request: json.RawMessage(`{"v":1,"request_id":"` + string(idA) + `"}`)},
				{Attempt: 1, Budget: -time.Millisecond, Request: json.RawMessage(`{"v":1,"request_id":"` + string(idB) + `"}`)},
			},
		},
		"dispatch_objectives": &Dispatch{
			V: 1, Pool: "default", Epoch: 4711, Items: []DispatchItem{
				{Attempt: 1, Budget: 1500 * time.Millisecond, TTFTBudget: -time.Millisecond, Request: json.RawMessage(`{"v":1,"request_id":"` + string(idA) + `"}`)},
			},
		},
		"dispatch_reply": &DispatchReply{
			V: 1, Worker: "w-51", Epoch: 4711,
			Verdicts: []Verdict{VerdictAccepted, VerdictDuplicate, VerdictFull, VerdictDraining, VerdictStaleEpoch, VerdictInvalid},
		},
		"cancel": &Cancel{V: 1, Request: idA, Reason: CancelDisconnect},
		"seal":   &Seal{V: 1, Request: idA, Attempt: 1},
		"seal_reply": &SealReply{
			V: 1, Known: true, Relayed: Tokens{9, 8, 7}, Finish: &Finish{Reason: FinishLength, PromptTokens: 500, CachedTokens: 1, OutputTokens: 3},
		},
		"worker_state": &WorkerState{
			V: 1, Worker: "w-51", Pool: "default", Model: "qwen2.5-0.5b-instruct", Interval: 250 * time.Millisecond, Draining: true,
			Slots: 64, Running: 31, Waiting: 2, ContextTokens: 4096, PageTokens: 16, KVPages: 2048, KVFreePages: 977, KVHighWater: 1500,
		},
		"request_objectives": &Request{
			V: 1, ID: idB, Pool: "default", Tenant: "acme", Ingress: "ing-7c4e", Kind: KindChat, Prompt: Tokens{1}, MaxTokens: 1,
			Budget: 2 * time.Second, TTFTBudget: 500 * time.Millisecond, OnDeadline: OnDeadlineCancel,
		},
		"event_admitted_decided": decided(Admitted, "best_effort_price"),
		"event_refused_decided":  decided(Refused, "infeasible"),
		"engine_state": &EngineState{
			V: 1, Worker: "w-51", Pool: "default", Model: "qwen2.5-0.5b-instruct", Step: 4711, StepLeft: 12_345_678, Slow: 1.25, FreePages: 977,
			Running: []SequenceState{{Request: idA, Tenant: "acme", Kind: KindChat, Class: Guaranteed, PromptTokens: 500, PrefillTokens: 244, OutputTokens: 17, CapTokens: 256,
				Age: 40 * time.Millisecond, Budget: 1960 * time.Millisecond, TTFTBudget: 460 * time.Millisecond}},
			Settings: &EngineSettings{Fingerprint: "b6a1f0c2", Profile: json.RawMessage(`{"version":1}`), Plan: json.RawMessage(`{}`)},
			Prefixes: &PrefixDigest{Key: 9_182_736_455, PageTokens: 16, Bits: []byte{0, 255, 1}, Hashes: 2, Shared: true},
		},
		"pool_state": &PoolState{
			V: 1, Pool: "default", Epoch: 4711, Interval: 250 * time.Millisecond, RequestSeq: 1_000_001,
			WaitingRequests: 300, WaitingPromptTokens: 150_000, WaitingCapTokens: 76_800,
			Waiting: []SequenceState{{Request: idB, Tenant: "acme", Kind: KindCompletion, PromptTokens: 500, PrefillTokens: 500, CapTokens: 256,
				Age: 40 * time.Millisecond, Budget: -time.Millisecond}},
		},
		"ingress_state": &IngressState{V: 1, Ingress: "ing-7c4e", Interval: 250 * time.Millisecond, Draining: true, Open: 200},
		"step": &Step{
			V: 1, Worker: "w-51", Time: 1_760_000_000_500_000_000, Step: 12_345, PrefillTokens: 512, DecodeBatch: 31,
			ContextTokens: 22_222, Duration: 18_345_678, KVFreePages: 977, KVHighWater: 1500,
		},
	}
	for _, typ := range Types {
		e := eventFixture(typ)
		all["event_"+string(typ)] = &e
	}
	return all
}

// eventFixture returns an event of the type with every field that its writer fills in.
func eventFixture(typ Type) Event {
	const ms = time.Millisecond
	e := Event{V: 1, Type: typ, Time: 1_760_000_000_123_456_789}
	request := func(e *Event) { e.Request, e.Pool, e.Tenant, e.Ingress = idA, "default", "acme", "ing-7c4e" }
	fromIngress := func(e *Event) {
		request(e)
		e.Source = "ing-7c4e"
		e.Model, e.ClientRequest, e.Kind, e.Class, e.Stream = "qwen2.5-0.5b-instruct", "trace-<42>", KindChat, Guaranteed, true
	}
	fromScheduler := func(e *Event) { request(e); e.Source, e.Epoch = "sched-1", 4711 }
	fromWorker := func(e *Event) { request(e); e.Source, e.Worker, e.Attempt = "w-51", "w-51", 2 }
	usage := func(e *Event) {
		e.PromptTokens, e.CachedTokens, e.OutputTokens, e.ResumeTokens = 500, 128, 64, 3
		e.QueueTime, e.PrefillTime, e.DecodeTime = 3*ms, 41*ms, 990*ms
	}
	switch typ {
	case Received:
		fromIngress(&e)
		e.Budget, e.Grace, e.PromptTokens, e.MaxTokens = 2000*ms, 30_000*ms, 500, 256
	case Refused:
		fromIngress(&e)
		e.Reason, e.Message, e.RetryAfter = string(RefusedCapacity), "the queue is full", 1700*ms
	case Admitted:
		fromIngress(&e)
		e.Budget, e.Grace, e.PromptTokens, e.MaxTokens, e.RequestSeq = 1999*ms, 30_000*ms, 500, 256, 1_000_001
	case Accepted:
		fromScheduler(&e)
		e.Class, e.Budget, e.Grace, e.PromptTokens, e.MaxTokens = Guaranteed, 1998*ms, 30_000*ms, 500, 256
		e.RequestSeq, e.QueueDepth = 1_000_001, 12
	case Dispatched:
		fromScheduler(&e)
		e.Attempt, e.Worker, e.QueueTime, e.QueueDepth, e.Resume, e.ResumeTokens = 2, "w-51", 3*ms, 11, Tokens{9, 8, 7}, 3
	case PrefillStarted:
		fromWorker(&e)
		e.PromptTokens, e.CachedTokens, e.QueueTime = 500, 128, 3*ms
	case FirstToken:
		fromWorker(&e)
		e.PrefillTime = 41 * ms
	case Preempted:
		fromWorker(&e)
		e.Ordinal, e.OutputTokens = 1, 17
	case Sealed:
		fromScheduler(&e)
		e.Attempt, e.ResumeTokens = 1, 3
	case Finished:
		fromWorker(&e)
		usage(&e)
		e.Reason = string(FinishLength)
	case Failed:
		fromWorker(&e)
		usage(&e)
		e.Reason, e.Message = string(FailedEngine), "decode returned -1"
	case Cancelled:
		fromWorker(&e)
		usage(&e)
		e.Reason = string(CancelDisconnect)
	case CancelRequested:
		fromIngress(&e)
		e.Reason = string(CancelGrace)
	case Delivered:
		fromIngress(&e)
		e.Reason, e.OutputTokens, e.TTFT, e.E2E = string(OutcomeComplete), 64, 52*ms, 1100*ms
	case WorkerUp:
		e.Source, e.Worker, e.Pool, e.Model = "w-51", "w-51", "default", "qwen2.5-0.5b-instruct"
		e.Backend, e.Fingerprint, e.Slots, e.KVPages, e.ContextTokens = "llamacpp", "b6a1f0c2", 64, 2048, 4096
	case WorkerDown:
		e.Source, e.Worker, e.Pool, e.Reason, e.Epoch = "sched-1", "w-51", "default", string(DownLost), 4711
	case Epoch:
		e.Source, e.Pool = "sched-1", "default"
	case ModelPublished, ModelRejected, ModelRolledBack:
		e.Source, e.Pool = "trainer-1", "default"
		e.Artifact, e.Reason, e.Message = artifactFixture, "not_worse", "bounds by 0.93 of the running model's, coverage 0.952"
	}
	return e
}

const artifactFixture = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// decided returns an event of the type with what decided on its request.
func decided(typ Type, rule string) *Event {
	e := eventFixture(typ)
	e.Request = idB
	e.Decision, e.Artifact = rule, artifactFixture
	e.TTFTBudget, e.Predicted, e.PredictedTTFT = 500*time.Millisecond, 1100*time.Millisecond, 52*time.Millisecond
	e.Bound, e.BoundLevel, e.Meet, e.Gain = 1600*time.Millisecond, 0.95, 0.97, 0.94
	e.Cost, e.Lambda, e.Propensity, e.Physics = 31*time.Millisecond, 2.5, 1, 1050*time.Millisecond
	e.Features = []float32{500, 128, 0, 1.5e-7}
	return &e
}

func fixturePath(name string) string { return filepath.Join("testdata", "v1", name+".json") }

func TestFixtures(t *testing.T) {
	for name, want := range fixtures() {
		t.Run(name, func(t *testing.T) {
			encoded, err := Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			frozen, err := os.ReadFile(fixturePath(name))
			if errors.Is(err, fs.ErrNotExist) && *update {
				if err := os.WriteFile(fixturePath(name), encoded, 0o644); err != nil {
					t.Fatal(err)
				}
				frozen = encoded
			} else if err != nil {
				t.Fatalf("%v (a new body: go test ./schema -update)", err)
			}
			if !bytes.Equal(encoded, frozen) {
				t.Errorf("the wire has changed, which running services do not survive\nencoded %s\n frozen %s", encoded, frozen)
			}
			got := newBody(want)
			if err := Decode(frozen, got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("decoded %+v\nwant    %+v", got, want)
			}
			if newWalks(want) && !fastDecode(frozen, newBody(want)) {
				t.Error("the short cut does not read what Encode wrote")
			}
		})
	}
}

// TestFixturesAreComplete holds that no fixture is an orphan, and that every field of every body has a value in one.
func TestFixturesAreComplete(t *testing.T) {
	all := fixtures()
	files, err := filepath.Glob(fixturePath("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		if _, ok := all[name]; !ok && name != newerMinor {
			t.Errorf("%s: no Go value for it", f)
		}
	}
	for _, typ := range Types {
		if _, ok := rules[typ]; !ok {
			t.Errorf("event %s has no rules", typ)
		}
	}
	if len(rules) != len(Types) {
		t.Errorf("%d types have rules, %d are listed", len(rules), len(Types))
	}
	filled := map[string]bool{}
	for _, m := range all {
		fill(filled, reflect.ValueOf(m).Elem())
	}
	for path, ok := range filled {
		if !ok {
			t.Errorf("%s is zero in every fixture", path)
		}
	}
	if len(filled) < 100 {
		t.Errorf("only %d fields found", len(filled))
	}
}

// fill records for each field of v, and of the structs in it, whether it has a value.
func fill(filled map[string]bool, v reflect.Value) {
	for i := range v.NumField() {
		path := v.Type().Name() + "." + v.Type().Field(i).Name
		f := v.Field(i)
		filled[path] = filled[path] || !f.IsZero()
		switch {
		case f.Kind() == reflect.Struct:
			fill(filled, f)
		case f.Kind() == reflect.Pointer && !f.IsNil():
			fill(filled, f.Elem())
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				fill(filled, f.Index(j))
			}
		}
	}
}

func newBody(like Body) Body { return reflect.New(reflect.TypeOf(like).Elem()).Interface().(Body) }

func newWalks(like Body) bool { return new(wire).walk(newBody(like)) }

// newerMinor is an event of a writer that knows more fields than this reader.
const newerMinor = "event_newer_minor"

func TestDecodeNewerMinorWriter(t *testing.T) {
	data, err := os.ReadFile(fixturePath(newerMinor))
	if err != nil {
		t.Fatal(err)
	}
	var got Event
	if err := Decode(data, &got); err != nil {
		t.Fatal(err)
	}
	if want := eventFixture(FirstToken); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestDecodeNewerVersion reads an event of a next version, in which a field also has another type.
func TestDecodeNewerVersion(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "v2", "event_first_token.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range bodies() {
		if err := Decode(data, m); !errors.Is(err, ErrVersion) || errors.Is(err, ErrInvalid) {
			t.Errorf("%T: got %v, want ErrVersion", m, err)
		}
	}
}

// bodies returns a zero value of every body type, in a fixed order.
func bodies() []Body {
	seen := map[reflect.Type]bool{}
	var all []Body
	for _, m := range fixtures() {
		if typ := reflect.TypeOf(m); !seen[typ] {
			seen[typ] = true
			all = append(all, newBody(m))
		}
	}
	slices.SortFunc(all, func(a, b Body) int {
		return strings.Compare(reflect.TypeOf(a).String(), reflect.TypeOf(b).String())
	})
	return all
}
