package peer

import (
	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/workload"
)

// request turns a request of a workload into a streamed POST /v1/completions: greedy, of exactly r.Output tokens. extra is
// more of the JSON object, beginning with a comma, for a server that wants to be told more.
func request(r *workload.Request, model, name, extra string) *load.Request {
	form := load.Form{Endpoint: load.Completions, Model: model, Name: name, Extra: extra}
	return form.Request(r)
}
