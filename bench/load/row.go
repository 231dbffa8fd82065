package load

import (
	"slices"
	"strconv"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
	"github.com/cadence-slo/cadence/bench/workload"
)

// Row is what becomes of a record in the books of a run, but for its phase. asked is max_tokens as sent. A connection that this client
// closed is censored: how long the answer would have taken is unknown. The tokens of an answer without usage are counted by
// its events.
func Row(r *Record, q *workload.Request, asked int) record.Request {
	row := record.Request{
		Index: r.Index, ID: r.RequestID, Tenant: q.Tenant, Class: q.Class, Kind: q.Kind,
		PromptTokens: len(q.Prompt), CapTokens: asked, OutputTokens: r.TextEvents,
		Intended: r.Intended, Lag: r.Lag, Queued: -1, TTFT: r.TTFT, E2E: r.E2E, RetryAfter: r.RetryAfter, Err: r.Err,
	}
	if u := r.Usage; u != nil {
		row.PromptTokens, row.CachedTokens, row.OutputTokens = u.PromptTokens, u.CachedTokens, u.CompletionTokens
	}
	row.ITL = AppendIntervals(nil, r.Gaps, row.OutputTokens)
	row.Outcome, row.Reason = outcome(r)
	return row
}

// outcome says how a request ended in terms of the books. What a server turns away with 429, or with the advice to come back
// later, is shed, also if it says so in a stream in which no text came; so is what its deadline ended in the queue.
func outcome(r *Record) (record.Outcome, string) {
	reason := r.Reason
	if reason == "" && r.Status != 0 && r.Status != 200 {
		reason = "http_" + strconv.Itoa(r.Status)
	}
	away := r.Status == 429 || r.Status == 503 && r.RetryAfter > 0
	switch r.Outcome {
	case OK:
		return record.OK, ""
	case Refused:
		return record.Shed, reason
	case HTTPError:
		if away {
			return record.Shed, reason
		}
		return record.Error, reason
	case StreamError:
		if r.TextEvents == 0 && (r.RetryAfter > 0 || reason == "deadline") {
			return record.Shed, reason
		}
	case Timeout:
		return record.Timeout, ""
	case Disconnected:
		return record.Censored, ""
	}
	if reason == "" {
		reason = string(r.Outcome)
	}
	return record.Error, reason
}

// AppendIntervals appends the intervals between a request's tokens: tokens - 1 of them are spread evenly over the gaps
// between its events, earlier gaps first, and a gap with k of them is k intervals of a k-th of it. With fewer intervals
// than gaps (an event without a token of its own, as the rest of a held-back text), each gap is one. An answer in one event
// has no intervals that could be seen.
func AppendIntervals(dst, gaps []time.Duration, tokens int) []time.Duration {
	if len(gaps) == 0 {
		return dst
	}
	each, more := (tokens-1)/len(gaps), (tokens-1)%len(gaps)
	if each < 1 {
		each, more = 1, 0
	}
	dst = slices.Grow(dst, each*len(gaps)+more)
	for i, g := range gaps {
		k := each
		if i < more {
			k++
		}
		for range k {
			dst = append(dst, g/time.Duration(k))
		}
	}
	return dst
}
