package openai

import (
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/schema"
)

const hello = `"messages":[{"role":"user","content":"hello"}]`

func chat(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"m",` + hello + extra + `}`
}

func completion(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"m","prompt":"hello"` + extra + `}`
}

// A refusal is a 400 that names param, and whose message has word.
type refusal struct{ body, param, word string }

func mustRefuse(t *testing.T, err *Error, c refusal) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: accepted, want 400 naming %q", c.body, c.param)
	}
	if err.Status != http.StatusBadRequest || err.Type != TypeInvalidRequest || err.Param != c.param || !strings.Contains(err.Message, c.word) {
		t.Errorf("%s: got %d %s param %q %q; want 400 param %q with %q", c.body, err.Status, err.Type, err.Param, err.Message, c.param, c.word)
	}
}

func refuseChat(t *testing.T, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		_, err := ParseChat([]byte(c.body), DefaultLimits())
		mustRefuse(t, err, c)
	}
}

func refuseCompletion(t *testing.T, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		_, err := ParseCompletion([]byte(c.body), DefaultLimits())
		mustRefuse(t, err, c)
	}
}

func mustChat(t *testing.T, body string) ChatRequest {
	t.Helper()
	r, err := ParseChat([]byte(body), DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func mustCompletion(t *testing.T, body string) CompletionRequest {
	t.Helper()
	r, err := ParseCompletion([]byte(body), DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

func TestDefaults(t *testing.T) {
	want := Common{Model: "m", Sampling: schema.Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1}}
	for _, body := range []string{
		chat(""),
		chat(`"max_tokens":null,"max_completion_tokens":null,"temperature":null,"top_p":null,"top_k":null,"min_p":null,
			"presence_penalty":null,"frequency_penalty":null,"repetition_penalty":null,"seed":null,"stop":null,"stream":null,
			"stream_options":null,"n":null,"logprobs":null,"top_logprobs":null,"response_format":null,"tools":null,"functions":null,
			"tool_choice":null,"function_call":null,"logit_bias":null,"user":null,"ignore_eos":null,"min_tokens":null`),
		chat(`"n":1,"best_of":1,"logprobs":false,"top_logprobs":0,"response_format":{"type":"text"},"tools":[],"functions":[],
			"tool_choice":"none","function_call":"none","logit_bias":{},"min_tokens":0,"stop":[],"modalities":["text"]`),
		chat(`"store":true,"metadata":{"a":[1,{"b":null}]},"service_tier":"auto","parallel_tool_calls":true,"Model":"not the model"`),
	} {
		got := mustChat(t, body)
		if !reflect.DeepEqual(got.Common, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", body, got.Common, want)
		}
		if !reflect.DeepEqual(got.Messages, []Message{{Role: RoleUser, Content: "hello"}}) {
			t.Errorf("%s: messages %+v", body, got.Messages)
		}
	}
	want.MaxTokens = CompletionMaxTokens
	for _, body := range []string{completion(""), completion(`"echo":false,"suffix":null,"best_of":1,"logprobs":null`), completion(`"suffix":"","logprobs":false`)} {
		if got := mustCompletion(t, body); !reflect.DeepEqual(got, CompletionRequest{Common: want, Prompt: "hello"}) {
			t.Errorf("%s: got %+v", body, got)
		}
	}
}

func TestEveryField(t *testing.T) {
	got := mustChat(t, chat(`"max_tokens":7,"temperature":0.5,"top_p":0.25,"top_k":40,"min_p":0.125,"presence_penalty":-2,
		"frequency_penalty":2,"repetition_penalty":1.5,"seed":-9223372036854775808,"stop":["a","b\n","c","d"],"stream":true,
		"stream_options":{"include_usage":true,"include_obfuscation":false},"user":"u-1","ignore_eos":true`))
	want := Common{Model: "m", MaxTokens: 7, HasSeed: true, Stop: []string{"a", "b\n", "c", "d"}, Stream: true, IncludeUsage: true,
		IgnoreEOS: true, User: "u-1", Sampling: schema.Sampling{Temperature: 0.5, TopK: 40, TopP: 0.25, MinP: 0.125,
			RepetitionPenalty: 1.5, PresencePenalty: -2, FrequencyPenalty: 2, Seed: 1 << 63}}
	if !reflect.DeepEqual(got.Common, want) {
		t.Errorf("got  %+v\nwant %+v", got.Common, want)
	}
	if err := got.Sampling.Validate(); err != nil {
		t.Error(err)
	}
}

// Several choices are refused, streamed or not, and so is none.
func TestChoices(t *testing.T) {
	for _, stream := range []string{`"stream":true,`, ``} {
		refuseChat(t, []refusal{
			{chat(stream + `"n":0`), "n", "out of range"},
			{chat(stream + `"n":-1`), "n", "out of range"},
			{chat(stream + `"n":2`), "n", "only one choice"},
			{chat(stream + `"n":1e30`), "n", "only one choice"},
			{chat(stream + `"n":1.5`), "n", "1.5"},
			{chat(stream + `"n":"1"`), "n", "a string"},
			{chat(stream + `"n":true`), "n", "a boolean"},
		})
		refuseCompletion(t, []refusal{
			{completion(stream + `"n":3`), "n", "only one choice"},
			{completion(stream + `"best_of":2`), "best_of", "only one choice"},
			{completion(stream + `"best_of":0`), "best_of", "out of range"},
		})
	}
}

// The context is checked before any byte of a stream, and both numbers are named.
func TestContextLength(t *testing.T) {
	for _, c := range []struct {
		prompt, context int
		requested       int64
		want            int32 // 0: context_length_exceeded
	}{
		{10, 100, 0, 90},
		{10, 100, 5, 5},
		{10, 100, 90, 90},
		{10, 100, 91, 90},
		{10, 100, math.MaxInt32, 90},
		{10, 100, math.MaxInt64, 90},
		{99, 100, 50, 1},
		{100, 100, 1, 0},
		{5000, 4096, 1, 0},
		{0, math.MaxInt32, math.MaxInt64, math.MaxInt32},
	} {
		got, err := OutputRoom("messages", c.prompt, c.context, c.requested)
		if c.want > 0 {
			if err != nil || got != c.want {
				t.Errorf("%+v: got %d, %v", c, got, err)
			}
			continue
		}
		if err == nil || err.Status != 400 || err.Code != "context_length_exceeded" || err.Param != "messages" ||
			!strings.Contains(err.Message, strconv.Itoa(c.prompt)) || !strings.Contains(err.Message, strconv.Itoa(c.context)) {
			t.Errorf("%+v: got %d, %+v", c, got, err)
		}
	}
}

func TestStreamOptions(t *testing.T) {
	for body, want := range map[string]bool{
		chat(`"stream":true`):                                          false,
		chat(`"stream":true,"stream_options":{}`):                      false,
		chat(`"stream":true,"stream_options":null`):                    false,
		chat(`"stream":false,"stream_options":null`):                   false,
		chat(`"stream":true,"stream_options":{"include_usage":false}`): false,
		chat(`"stream":true,"stream_options":{"include_usage":null}`):  false,
		chat(`"stream":true,"stream_options":{"include_usage":true}`):  true,
		chat(`"stream_options":{"include_usage":true},"stream":true`):  true,
	} {
		if got := mustChat(t, body); got.IncludeUsage != want {
			t.Errorf("%s: include_usage %v", body, got.IncludeUsage)
		}
	}
	refuseChat(t, []refusal{
		{chat(`"stream_options":{"include_usage":true}`), "stream_options", "'stream' is true"},
		{chat(`"stream":false,"stream_options":{}`), "stream_options", "'stream' is true"},
		{chat(`"stream":true,"stream_options":true`), "stream_options", "an object"},
		{chat(`"stream":true,"stream_options":{"include_usage":1}`), "stream_options.include_usage", "a number"},
		{chat(`"stream":true,"stream_options":{"include_usage":true,"include_usage":false}`), "stream_options.include_usage", "twice"},
		{chat(`"stream":"true"`), "stream", "a string"},
		{chat(`"stream":1`), "stream", "a number"},
	})
}

// Either name of the output cap works, alone or with the other saying the same.
func TestMaxTokens(t *testing.T) {
	for value, want := range map[string]int64{
		`1`: 1, `256`: 256, `2147483647`: math.MaxInt32, `2147483648`: 1 << 31, `1e18`: 1e18, `1E+18`: 1e18, `10.0`: 10, `2.5e1`: 25,
		`9223372036854775807`: math.MaxInt64, `9223372036854775808`: math.MaxInt64, `1e19`: math.MaxInt64, `1e400`: math.MaxInt64,
		`1e999999999999999999999`: math.MaxInt64, strings.Repeat("9", 4000): math.MaxInt64, `null`: 0,
	} {
		for _, key := range []string{"max_tokens", "max_completion_tokens"} {
			field := `"` + key + `":` + value
			if got := mustChat(t, chat(field)); got.MaxTokens != want {
				t.Errorf("chat %s: got %d, want %d", field, got.MaxTokens, want)
			}
			wantCompletion := want
			if want == 0 {
				wantCompletion = CompletionMaxTokens
			}
			if got := mustCompletion(t, completion(field)); got.MaxTokens != wantCompletion {
				t.Errorf("completion %s: got %d, want %d", field, got.MaxTokens, wantCompletion)
			}
		}
	}
	for _, value := range []string{`0`, `-0`, `-1`, `-1e30`, `1.5`, `1e-1`, `0.5`, `1e-400`, `"12"`, `""`, `true`, `[1]`, `{}`} {
		for _, key := range []string{"max_tokens", "max_completion_tokens"} {
			field := `"` + key + `":` + value
			refuseChat(t, []refusal{{chat(field), key, "an integer ≥ 1"}})
			refuseCompletion(t, []refusal{{completion(field), key, "an integer ≥ 1"}})
		}
	}
	if got := mustChat(t, chat(`"max_tokens":5,"max_completion_tokens":5`)); got.MaxTokens != 5 {
		t.Errorf("both equal: %d", got.MaxTokens)
	}
	if got := mustChat(t, chat(`"max_tokens":null,"max_completion_tokens":5`)); got.MaxTokens != 5 {
		t.Errorf("one null: %d", got.MaxTokens)
	}
	refuseChat(t, []refusal{
		{chat(`"max_tokens":5,"max_completion_tokens":6`), "max_completion_tokens", "'max_tokens' is 5"},
		{chat(`"max_completion_tokens":6,"max_tokens":5`), "max_tokens", "'max_completion_tokens' is 6"},
	})
}

func TestMessages(t *testing.T) {
	msgs := func(list string) string { return `{"model":"m","messages":` + list + `}` }
	for body, want := range map[string][]Message{
		msgs(`[{"role":"system","content":""}]`): {{Role: RoleSystem}},
		msgs(`[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"zwei"}]},{"content":null,"role":"assistant"}]`): {
			{Role: RoleUser, Content: "one\nzwei"}, {Role: RoleAssistant}},
		msgs(`[{"role":"developer","content":"d","name":"N"},{"role":"tool","content":"42","tool_call_id":"c1"}]`): {
			{Role: RoleDeveloper, Content: "d", Name: "N"}, {Role: RoleTool, Content: "42", ToolCallID: "c1"}},
		msgs(`[{"role":"assistant","content":"a","refusal":null,"tool_calls":null,"function_call":null,"annotations":[]}]`): {{Role: RoleAssistant, Content: "a"}},
		msgs(`[{"\u0072ole":"user","content":"\ud83d\ude00\u00e9\u2028\/\b\f\n\r\t\"\\ 汉字 🎈\u0000"}]`): {
			{Role: RoleUser, Content: "😀é\u2028/\b\f\n\r\t\"\\ 汉字 🎈\x00"}},
	} {
		if got := mustChat(t, body); !reflect.DeepEqual(got.Messages, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", body, got.Messages, want)
		}
	}
	refuseChat(t, []refusal{
		{`{"model":"m"}`, "messages", "Missing"},
		{msgs(`null`), "messages", "Missing"},
		{msgs(`[]`), "messages", "empty"},
		{msgs(`"hi"`), "messages", "a string"},
		{msgs(`{}`), "messages", "an object"},
		{msgs(`["hi"]`), "messages[0]", "a string"},
		{msgs(`[null]`), "messages[0]", "null"},
		{msgs(`[{"role":"user"}]`), "messages[0].content", "Missing"},
		{msgs(`[{"role":"assistant"}]`), "messages[0].content", "Missing"},
		{msgs(`[{"role":"user","content":"a"},{"role":"user","content":null}]`), "messages[1].content", "null"},
		{msgs(`[{"content":null,"role":"tool"}]`), "messages[0].content", "null"},
		{msgs(`[{"content":"x"}]`), "messages[0].role", "Missing"},
		{msgs(`[{"content":"x","role":null}]`), "messages[0].role", "Missing"},
		{msgs(`[{"role":"wizard","content":"x"}]`), "messages[0].role", "wizard"},
		{msgs(`[{"role":"User","content":"x"}]`), "messages[0].role", "User"},
		{msgs(`[{"role":"function","content":"x","name":"f"}]`), "messages[0].role", "function"},
		{msgs(`[{"role":1,"content":"x"}]`), "messages[0].role", "a number"},
		{msgs(`[{"role":"user","content":7}]`), "messages[0].content", "a number"},
		{msgs(`[{"role":"user","content":[]}]`), "messages[0].content", "empty"},
		{msgs(`[{"role":"user","content":["x"]}]`), "messages[0].content[0]", "a string"},
		{msgs(`[{"role":"user","content":[{"text":"x"}]}]`), "messages[0].content[0].type", "Missing"},
		{msgs(`[{"role":"user","content":[{"type":"text"}]}]`), "messages[0].content[0].text", "Missing"},
		{msgs(`[{"role":"user","content":[{"type":"text","text":null}]}]`), "messages[0].content[0].text", "null"},
		{msgs(`[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}]`), "messages[0].content[1].type", "image_url"},
		{msgs(`[{"role":"user","content":"a","content":"b"}]`), "messages[0].content", "twice"},
		{msgs(`[{"role":"user","role":"system","content":"b"}]`), "messages[0].role", "twice"},
		{msgs(`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`), "messages[0].tool_calls", "only text"},
		{msgs(`[{"role":"assistant","content":"","function_call":{"name":"f"}}]`), "messages[0].function_call", "only text"},
	})
	many := msgs("[" + strings.Repeat(`{"role":"user","content":"x"},`, DefaultLimits().Messages) + `{"role":"user","content":"x"}]`)
	refuseChat(t, []refusal{{many, "messages", "more than 4096"}})
}

func TestLogprobs(t *testing.T) {
	for body, want := range map[string]int32{
		chat(`"logprobs":true`): 1, chat(`"logprobs":true,"top_logprobs":0`): 1, chat(`"top_logprobs":20,"logprobs":true`): 21,
		chat(`"logprobs":false,"top_logprobs":0`): 0, chat(`"logprobs":null,"top_logprobs":null`): 0,
	} {
		if got := mustChat(t, body); got.Logprobs != want {
			t.Errorf("%s: %d, want %d", body, got.Logprobs, want)
		}
	}
	for body, want := range map[string]int32{completion(`"logprobs":0`): 1, completion(`"logprobs":5`): 6, completion(`"logprobs":false`): 0, completion(``): 0} {
		if got := mustCompletion(t, body); got.Logprobs != want {
			t.Errorf("%s: %d, want %d", body, got.Logprobs, want)
		}
	}
	refuseChat(t, []refusal{
		{chat(`"logprobs":1`), "logprobs", "a number"},
		{chat(`"logprobs":true,"top_logprobs":21`), "top_logprobs", "[0, 20]"},
		{chat(`"logprobs":true,"top_logprobs":-1`), "top_logprobs", "[0, 20]"},
		{chat(`"logprobs":true,"top_logprobs":1.5`), "top_logprobs", "1.5"},
		{chat(`"logprobs":true,"top_logprobs":1e30`), "top_logprobs", "[0, 20]"},
		{chat(`"top_logprobs":3`), "top_logprobs", "'logprobs' is true"},
		{chat(`"logprobs":false,"top_logprobs":3`), "top_logprobs", "'logprobs' is true"},
	})
	refuseCompletion(t, []refusal{
		{completion(`"logprobs":6`), "logprobs", "[0, 5]"},
		{completion(`"logprobs":-1`), "logprobs", "[0, 5]"},
		{completion(`"logprobs":true`), "logprobs", "true"},
		{completion(`"logprobs":"1"`), "logprobs", "a string"},
		{completion(`"prompt_logprobs":2`), "prompt_logprobs", "not supported"},
	})
}

func TestResponseFormat(t *testing.T) {
	const schema = `{ "type":"object", "properties":{"b":{"type":"null"},"a":{}} }`
	for body, want := range map[string]string{
		chat(`"response_format":{"type":"text"}`):        "",
		chat(`"response_format":{"type":"json_object"}`): `{"type":"object"}`,
		chat(`"response_format":{"json_schema":{"schema":` + schema + `,"description":"d","name":"n","strict":true},"type":"json_schema"}`): schema,
		chat(`"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":null,"schema":` + schema + `}}`):                   schema,
		chat(`"response_format":{"type":"text","json_schema":null}`):                                                                        "",
	} {
		got := mustChat(t, body)
		if string(got.Schema) != want || want == "" && got.Schema != nil {
			t.Errorf("%s: %s, want %s", body, got.Schema, want)
		}
	}
	if got := mustCompletion(t, completion(`"response_format":{"type":"json_object"}`)); string(got.Schema) != `{"type":"object"}` {
		t.Errorf("completion: %s", got.Schema)
	}
	with := func(s string) string { return chat(`"response_format":{"type":"json_schema","json_schema":` + s + `}`) }
	refuseChat(t, []refusal{
		{chat(`"response_format":{"type":"xml"}`), "response_format.type", "xml"},
		{chat(`"response_format":{}`), "response_format.type", "Missing"},
		{chat(`"response_format":"text"`), "response_format", "a string"},
		{chat(`"response_format":{"type":"text","type":"text"}`), "response_format.type", "twice"},
		{chat(`"response_format":{"type":"json_schema"}`), "response_format.json_schema", "Missing"},
		{with(`[]`), "response_format.json_schema", "an array"},
		{with(`{"schema":{}}`), "response_format.json_schema.name", "Missing"},
		{with(`{"name":"n"}`), "response_format.json_schema.schema", "Missing"},
		{with(`{"name":"n","schema":null}`), "response_format.json_schema.schema", "Missing"},
		{with(`{"name":"","schema":{}}`), "response_format.json_schema.name", "empty"},
		{with(`{"name":"` + strings.Repeat("n", 65) + `","schema":{}}`), "response_format.json_schema.name", "65"},
		{with(`{"name":"n","schema":[]}`), "response_format.json_schema.schema", "an array"},
		{with(`{"name":"n","strict":1,"schema":{}}`), "response_format.json_schema.strict", "a number"},
		{with(`{"name":"n","schema":{},"schema":{}}`), "response_format.json_schema.schema", "twice"},
		{chat(`"ignore_eos":true,"response_format":{"type":"json_object"}`), "ignore_eos", "complete"},
	})
}

func TestUnsupported(t *testing.T) {
	refuseChat(t, []refusal{
		{chat(`"tools":[{"type":"function"}]`), "tools", "not supported"},
		{chat(`"tools":[{"type":"function"}],"tool_choice":"none"`), "tools", "not supported"},
		{chat(`"functions":[{"name":"f"}]`), "functions", "not supported"},
		{chat(`"tool_choice":"auto"`), "tool_choice", "only 'none'"},
		{chat(`"tool_choice":{"type":"function","function":{"name":"f"}}`), "tool_choice", "only 'none'"},
		{chat(`"function_call":"auto"`), "function_call", "only 'none'"},
		{chat(`"logit_bias":{"50256":-100}`), "logit_bias", "not supported"},
		{chat(`"min_tokens":5`), "min_tokens", "not supported"},
		{chat(`"modalities":["text","audio"]`), "modalities", "only 'text'"},
		{chat(`"audio":{"voice":"v"}`), "audio", "only text"},
		{chat(`"stop_token_ids":[2]`), "stop_token_ids", "only 'stop'"},
		{chat(`"guided_json":{"type":"object"}`), "guided_json", "not supported"},
	})
	refuseCompletion(t, []refusal{
		{completion(`"echo":true`), "echo", "not supported"},
		{completion(`"suffix":" end"`), "suffix", "not supported"},
	})
}

func TestRanges(t *testing.T) {
	refuseChat(t, []refusal{
		{chat(`"temperature":-0.1`), "temperature", "[0, 2]"},
		{chat(`"temperature":2.0001`), "temperature", "[0, 2]"},
		{chat(`"temperature":1e999`), "temperature", "[0, 2]"},
		{chat(`"temperature":"hot"`), "temperature", "a string"},
		{chat(`"top_p":0`), "top_p", "greater than 0"},
		{chat(`"top_p":-0.0`), "top_p", "greater than 0"},
		{chat(`"top_p":1.5`), "top_p", "up to 1"},
		{chat(`"min_p":1.01`), "min_p", "[0, 1]"},
		{chat(`"top_k":-2`), "top_k", "-2"},
		{chat(`"top_k":1.5`), "top_k", "1.5"},
		{chat(`"presence_penalty":2.1`), "presence_penalty", "[-2, 2]"},
		{chat(`"frequency_penalty":-2.1`), "frequency_penalty", "[-2, 2]"},
		{chat(`"repetition_penalty":0`), "repetition_penalty", "greater than 0"},
		{chat(`"repetition_penalty":2.5`), "repetition_penalty", "up to 2"},
		{chat(`"seed":9223372036854775808`), "seed", "64-bit"},
		{chat(`"seed":-9223372036854775809`), "seed", "64-bit"},
		{chat(`"seed":1.5`), "seed", "64-bit"},
		{chat(`"seed":"7"`), "seed", "64-bit"},
		{chat(`"ignore_eos":"yes"`), "ignore_eos", "a string"},
		{chat(`"stop":""`), "stop", "empty"},
		{chat(`"stop":["a",""]`), "stop[1]", "empty"},
		{chat(`"stop":["a","b","c","d","e"]`), "stop", "more than 4"},
		{chat(`"stop":[1]`), "stop[0]", "a number"},
		{chat(`"stop":7`), "stop", "a number"},
		{chat(`"stop":"` + strings.Repeat("x", 1025) + `"`), "stop", "1024"},
		{chat(`"user":7`), "user", "a number"},
		{chat(`"user":"` + strings.Repeat("x", 513) + `"`), "user", "512"},
		{`{` + hello + `}`, "model", "Missing"},
		{`{"model":null,` + hello + `}`, "model", "Missing"},
		{`{"model":"",` + hello + `}`, "model", "empty"},
		{`{"model":3,` + hello + `}`, "model", "a number"},
		{`{"model":"` + strings.Repeat("m", 257) + `",` + hello + `}`, "model", "256"},
	})
	// The edges are inside.
	for _, f := range []string{`"temperature":0`, `"temperature":2`, `"top_p":1`, `"top_p":1e-9`, `"min_p":0`, `"min_p":1`, `"top_k":0`, `"top_k":-1`,
		`"top_k":99999999999`, `"presence_penalty":-2`, `"frequency_penalty":2`, `"repetition_penalty":2`, `"seed":9223372036854775807`, `"seed":0`} {
		if got := mustChat(t, chat(f)); got.Sampling.Validate() != nil {
			t.Errorf("%s: %v", f, got.Sampling.Validate())
		}
	}
	// 0 turns top_p and repetition_penalty off, so that a tiny value must not become 0 in 32 bits.
	for _, v := range []string{"1e-50", "1e-400"} {
		if got := mustChat(t, chat(`"top_p":`+v+`,"repetition_penalty":`+v)); got.Sampling.TopP == 0 || got.Sampling.RepetitionPenalty == 0 {
			t.Errorf("%s was rounded to 0: %+v", v, got.Sampling)
		}
	}
	if got := mustChat(t, chat(`"temperature":-0.0`)); math.Signbit(float64(got.Sampling.Temperature)) {
		t.Error("temperature is -0")
	}
	if got := mustChat(t, chat(`"stop":"END"`)); !reflect.DeepEqual(got.Stop, []string{"END"}) {
		t.Errorf("stop %q", got.Stop)
	}
}

func TestPrompt(t *testing.T) {
	prompt := func(v string) string { return `{"model":"m","prompt":` + v + `}` }
	for v, want := range map[string]CompletionRequest{
		`"a\nb"`:              {Prompt: "a\nb"},
		`["one"]`:             {Prompt: "one"},
		`[1,2,30000]`:         {PromptTokens: schema.Tokens{1, 2, 30000}},
		`[0]`:                 {PromptTokens: schema.Tokens{0}},
		`[ 7 , 8 ]`:           {PromptTokens: schema.Tokens{7, 8}},
		`[2147483647,1e3]`:    {PromptTokens: schema.Tokens{math.MaxInt32, 1000}},
		`[[5,6]]`:             {PromptTokens: schema.Tokens{5, 6}},
		`[123456789,1234567]`: {PromptTokens: schema.Tokens{123456789, 1234567}},
	} {
		got := mustCompletion(t, prompt(v))
		if got.Prompt != want.Prompt || !reflect.DeepEqual(got.PromptTokens, want.PromptTokens) {
			t.Errorf("%s: got %q %v", v, got.Prompt, got.PromptTokens)
		}
	}
	refuseCompletion(t, []refusal{
		{`{"model":"m"}`, "prompt", "Missing"},
		{prompt(`null`), "prompt", "Missing"},
		{prompt(`""`), "prompt", "empty"},
		{prompt(`[""]`), "prompt", "empty"},
		{prompt(`[]`), "prompt", "empty"},
		{prompt(`[[]]`), "prompt", "empty"},
		{prompt(`["a","b"]`), "prompt", "only one prompt"},
		{prompt(`[[1],[2]]`), "prompt", "only one prompt"},
		{prompt(`["a",1]`), "prompt", "only one prompt"},
		{prompt(`[1,"a"]`), "prompt[1]", "a string"},
		{prompt(`[1,[2]]`), "prompt[1]", "an array"},
		{prompt(`[-1]`), "prompt[0]", "-1"},
		{prompt(`[1,2.5]`), "prompt[1]", "2.5"},
		{prompt(`[2147483648]`), "prompt[0]", "2147483648"},
		{prompt(`[[1,"x"]]`), "prompt[0][1]", "a string"},
		{prompt(`[true]`), "prompt[0]", "a boolean"},
		{prompt(`7`), "prompt", "a number"},
		{prompt(`{"a":1}`), "prompt", "an object"},
		{prompt(`[01]`), "", "unexpected '1'"},
	})
	limits := DefaultLimits()
	limits.PromptTokens = 3
	if _, err := ParseCompletion([]byte(prompt(`[1,2,3,4]`)), limits); err == nil || err.Param != "prompt" || !strings.Contains(err.Message, "more than 3") {
		t.Errorf("over the limit of token ids: %v", err)
	}
}

func TestPayloadTooLarge(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", 1_300_000) + `"}]}`)
	for name, parse := range map[string]func() *Error{
		"chat":       func() *Error { _, err := ParseChat(body, DefaultLimits()); return err },
		"completion": func() *Error { _, err := ParseCompletion(body, DefaultLimits()); return err },
	} {
		if err := parse(); err == nil || err.Status != http.StatusRequestEntityTooLarge || !strings.Contains(err.Message, "1048576 bytes") {
			t.Errorf("%s: %+v", name, err)
		}
	}
}

// A result stays what it was when the server reuses the body's memory.
func TestNothingAliasesTheBody(t *testing.T) {
	body := []byte(chat(`"stop":["END","a\nb"],"user":"someone"`))
	got, err := ParseChat(body, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		body[i] = '#'
	}
	if got.Model != "m" || got.Messages[0].Content != "hello" || got.Stop[0] != "END" || got.Stop[1] != "a\nb" || got.User != "someone" {
		t.Errorf("%+v", got)
	}
}

func TestLimits(t *testing.T) {
	if err := DefaultLimits().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key string
		set func(*Limits)
	}{
		{"body_bytes", func(l *Limits) { l.BodyBytes = 0 }},
		{"depth", func(l *Limits) { l.Depth = 3 }},
		{"messages", func(l *Limits) { l.Messages = 0 }},
		{"prompt_tokens", func(l *Limits) { l.PromptTokens = -1 }},
		{"stops", func(l *Limits) { l.Stops = 0 }},
		{"stops", func(l *Limits) { l.Stops = schema.MaxStops + 1 }},
		{"stop_bytes", func(l *Limits) { l.StopBytes = 0 }},
	} {
		l := DefaultLimits()
		c.set(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: %v", c.key, err)
		}
	}
}

// Each known key has its own bit, or a second key would be taken for a repeated one.
func TestFieldBits(t *testing.T) {
	for name, table := range map[string]map[string]field{"chat": chatFields, "completion": completionFields} {
		var all uint64
		for key, f := range table {
			if f.bit == 0 || all&f.bit != 0 {
				t.Errorf("%s: %s shares a bit", name, key)
			}
			all |= f.bit
		}
	}
}
