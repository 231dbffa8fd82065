package load

import (
	"fmt"
	"strconv"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/schema"
	"github.com/tidwall/gjson"
)

// The endpoints that requests of a workload can be sent to.
const (
	Completions = "completions"
	Chat        = "chat"
)

// Form says how requests of a workload are put to a server. Tenants go into X-Tenant, and the classes that Cadence knows into
// X-SLO-Class. It is not changed and safe for concurrent use.
type Form struct {
	Endpoint string // Completions or Chat
	Model    string
	// Text sends a prompt as words, one for each token id (see Word), instead of the ids. Chat always does. A server counts
	// about as many tokens as its tokenizer makes of such words: mostly more than one of each.
	Text bool
	// Capped sends the cap as max_tokens and lets the model end where it ends. Otherwise the answer's length is sent, with
	// ignore_eos: every server answers the same amount.
	Capped bool
	// Deadlines, by class, are sent as X-SLO-E2E-Ms, so that admission and scheduling know what is wanted; nil sends none.
	Deadlines map[string]record.SLO
	// Name begins every X-Request-Id, behind which the request's index stands; empty sends none.
	Name string
	// Extra is more of the JSON object, beginning with a comma, for a server that wants to be told more.
	Extra string
}

// Validate returns ErrConfig for the first key that is outside its range.
func (f *Form) Validate() error {
	if f.Endpoint != Completions && f.Endpoint != Chat {
		return fmt.Errorf("%w: endpoint is %q, allowed: %s, %s", ErrConfig, f.Endpoint, Completions, Chat)
	}
	return nil
}

// MaxTokens is what a request asks for as max_tokens.
func (f *Form) MaxTokens(r *workload.Request) int {
	if f.Capped {
		return r.Cap
	}
	return r.Output
}

// Request puts a request of a workload: a streamed, greedy POST that asks for usage.
func (f *Form) Request(r *workload.Request) *Request {
	b := make([]byte, 0, 256+9*len(r.Prompt))
	b = append(b, `{"model":`...)
	b = gjson.AppendJSONString(b, f.Model)
	out := &Request{Path: "/v1/completions"}
	switch {
	case f.Endpoint == Chat:
		out.Path = "/v1/chat/completions"
		b = append(b, `,"messages":[`...)
		user := r.Prompt
		if r.SystemTokens > 0 && r.SystemTokens < len(r.Prompt) { // one message each, so that what is shared stays a prefix
			b = append(b, `{"role":"system","content":"`...)
			b = appendWords(b, r.Prompt[:r.SystemTokens])
			b = append(b, `"},`...)
			user = r.Prompt[r.SystemTokens:]
		}
		b = append(b, `{"role":"user","content":"`...)
		b = appendWords(b, user)
		b = append(b, `"}]`...)
	case f.Text:
		b = append(b, `,"prompt":"`...)
		b = appendWords(b, r.Prompt)
		b = append(b, '"')
	default:
		b = append(b, `,"prompt":[`...)
		for i, id := range r.Prompt {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(id), 10)
		}
		b = append(b, ']')
	}
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(f.MaxTokens(r)), 10)
	b = append(b, `,"temperature":0,"seed":1`...)
	if !f.Capped {
		b = append(b, `,"ignore_eos":true`...)
	}
	b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	b = append(b, f.Extra...)
	b = append(b, '}')
	out.Body = b
	if f.Name != "" {
		out.ClientID = f.Name + "-" + strconv.Itoa(r.Index)
	}
	header := func(key, value string) {
		if value == "" {
			return
		}
		if out.Header == nil {
			out.Header = make(map[string]string, 3)
		}
		out.Header[key] = value
	}
	header("X-Tenant", r.Tenant)
	if class := schema.Class(r.Class); class == schema.Guaranteed || class == schema.BestEffort {
		header("X-SLO-Class", r.Class)
	}
	if deadline := record.Objective(f.Deadlines, r.Class).E2E; deadline > 0 {
		header("X-SLO-E2E-Ms", strconv.FormatInt(max(1, deadline.Milliseconds()), 10))
	}
	return out
}

const consonants, vowels = "bcdfghjklmnpqrstvwxyz", "aeiou"

// Word is the word that stands for a token id ≥ 0 in a text: different ids have different words.
func Word(id int32) string { return string(appendWord(nil, id)) }

func appendWord(b []byte, id int32) []byte {
	const syllables = len(consonants) * len(vowels)
	for n := max(0, int(id)); ; n /= syllables {
		b = append(b, consonants[n%syllables/len(vowels)], vowels[n%len(vowels)])
		if n < syllables {
			return b
		}
		n -= syllables // a word of k syllables is of none with fewer
	}
}

func appendWords(b []byte, ids []int32) []byte {
	for i, id := range ids {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendWord(b, id)
	}
	return b
}
