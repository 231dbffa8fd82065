package peer

import (
	"strconv"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/workload"
)

// request turns a request of a workload into a streamed POST /v1/completions: greedy, of exactly r.Output tokens. extra is
// more of the JSON object, beginning with a comma, for a server that wants to be told more.
func request(r *workload.Request, model, name, extra string) *load.Request {
	b := make([]byte, 0, 256+7*len(r.Prompt))
	b = append(b, `{"model":`...)
	b = strconv.AppendQuote(b, model)
	b = append(b, `,"prompt":[`...)
	for i, id := range r.Prompt {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	b = append(b, `],"max_tokens":`...)
	b = strconv.AppendInt(b, int64(r.Output), 10)
	b = append(b, `,"temperature":0,"seed":1,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}`...)
	b = append(b, extra...)
	b = append(b, '}')
	return &load.Request{Path: "/v1/completions", Body: b, ClientID: name + "-" + strconv.Itoa(r.Index)}
}
