package workload

import (
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// Source gives the requests of a run. It is safe for concurrent use.
type Source interface {
	// Name is the workload's.
	Name() string
	// Describe is all that is needed to make the same requests again, as JSON, for the run's record.
	Describe() json.RawMessage
	// SLOs are the objectives by class; nil: the workload declares none.
	SLOs() map[string]record.SLO
	// Request returns the i-th request, i ≥ 0.
	Request(i int) Request
}

// Timed is a Source whose requests come with times of their own, as those of a trace do.
type Timed interface {
	Source
	// Arrivals are the times since the beginning of the trace, ascending, one for each request; never rescaled.
	Arrivals() iter.Seq[time.Duration]
}

// OpenSource opens a source by name:
//
//   - seed, or another name of [Embedded], or the file of a description: drawn with seed, see [Spec];
//   - azure:FILE, a CSV as Microsoft publishes them (TIMESTAMP, ContextTokens, GeneratedTokens);
//   - mooncake:FILE, JSON lines with timestamp (ms), input_length, output_length and hash_ids, equal ids being equal blocks
//     of 512 tokens;
//   - record:DIR, the requests of a run of ours, see package record.
//
// The last three are [Timed]; their token ids are drawn with seed. Options may stand behind the file as
// ?key=value&key=value: tokens=0.25 makes all lengths a quarter; from=10m and length=5m take a window; rate=2 stretches the
// times so that their mean rate is 2 requests/s. Nothing is rescaled without them, and Describe tells what was.
//
// It returns ErrSpec or ErrTrace.
func OpenSource(name string, vocab Vocabulary, seed uint64) (Source, error) {
	kind, rest, _ := strings.Cut(name, ":")
	read := map[string]func(string, []byte) ([]row, error){"azure": readAzure, "mooncake": readMooncake}[kind]
	if read == nil && kind != "record" {
		spec, err := Open(name)
		if err != nil {
			return nil, err
		}
		return New(spec, vocab, seed)
	}
	file, o, err := splitOptions(rest)
	if err != nil {
		return nil, err
	}
	if kind == "record" {
		return openRecord(file, o, vocab, seed)
	}
	content, err := readTrace(file)
	if err != nil {
		return nil, err
	}
	rows, err := read(file, content)
	if err != nil {
		return nil, err
	}
	return newTrace(kind, file, content, rows, o, vocab, seed)
}
