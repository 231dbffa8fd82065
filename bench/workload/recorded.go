package workload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/cadence-slo/cadence/bench/record"
)

// openRecord reads the requests of a run again: dir is its directory, or its requests.jsonl. Their prompts are those of the
// workload that the run says it had, if it was drawn and lengths stay as they are; otherwise they have the recorded lengths
// and share nothing.
func openRecord(dir string, o options, vocab Vocabulary, seed uint64) (*trace, error) {
	file := filepath.Join(dir, record.ParquetFile)
	if filepath.Base(dir) == record.JSONLFile {
		file, dir = dir, filepath.Dir(dir)
	} else if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		file = filepath.Join(dir, record.JSONLFile)
	}
	content, err := readTrace(file)
	if err != nil {
		return nil, err
	}
	var requests []record.Request
	if filepath.Base(file) == record.JSONLFile {
		err = lines(file, content, func(line int, text []byte) error {
			var r record.Request
			if err := json.Unmarshal(text, &r); err != nil {
				return located(file, line, "%w", err)
			}
			requests = append(requests, r)
			return recordable(file, line, &r)
		})
	} else if requests, err = record.Requests(dir); err == nil {
		for i := range requests {
			err = errors.Join(err, recordable(file, i+1, &requests[i]))
		}
	}
	if err != nil {
		return nil, err
	}
	rows, guessed := recordedRows(requests)
	t, err := newTrace("record", file, content, rows, o, vocab, seed)
	if err != nil {
		return nil, err
	}
	t.about.Estimated = guessed
	if _, err := os.Stat(filepath.Join(dir, record.RunFile)); errors.Is(err, fs.ErrNotExist) {
		return t, nil // did not end: nobody says under which objectives
	}
	run, err := record.Open(dir)
	if err != nil {
		return nil, err
	}
	t.slos = run.SLOs
	var d drawn
	if o.tokens != 1 || json.Unmarshal(run.WorkloadSpec, &d) != nil || d.Spec == nil {
		return t, nil
	}
	if t.origin, err = d.generator(vocab); err != nil {
		return nil, fmt.Errorf("%s: workload_spec: %w", filepath.Join(dir, record.RunFile), err)
	}
	t.about.Origin, t.about.Estimated = run.WorkloadSpec, 0
	return t, nil
}

// recordable says whether a recorded request can be made again.
func recordable(file string, line int, r *record.Request) error {
	switch {
	case r.Intended < 0:
		return located(file, line, "intended_ns is %d, allowed: 0 and more", r.Intended)
	case r.Index < 0:
		return located(file, line, "index is %d, allowed: 0 and more", r.Index)
	case r.PromptTokens < 1 || r.PromptTokens > maxTokens:
		return located(file, line, "prompt_tokens is %d, allowed: 1 to %d", r.PromptTokens, maxTokens)
	case r.CapTokens < 0 || r.OutputTokens < 0 || r.CapTokens+r.OutputTokens < 1 || max(r.CapTokens, r.OutputTokens) > maxTokens:
		return located(file, line, "cap_tokens is %d and output_tokens is %d, allowed: 0 to %d, not both 0", r.CapTokens, r.OutputTokens, maxTokens)
	}
	return nil
}

// recordedRows returns requests in order of their arrivals, and for how many the length of the answer was not recorded, for
// they were refused or cut off. Theirs is their cap's part that the other answers were of their caps on average.
func recordedRows(requests []record.Request) (rows []row, guessed int) {
	outputs, caps := 0, 0
	for i := range requests {
		if r := &requests[i]; r.Outcome == record.OK && r.OutputTokens > 0 && r.CapTokens > 0 {
			outputs += r.OutputTokens
			caps += r.CapTokens
		}
	}
	ratio := 1.0
	if caps > 0 {
		ratio = float64(outputs) / float64(caps)
	}
	for i := range requests {
		r := &requests[i]
		output := r.OutputTokens
		if (r.Outcome != record.OK || output == 0) && r.CapTokens > 0 {
			guessed++
			output = max(1, r.OutputTokens, int(math.Round(ratio*float64(r.CapTokens))))
		}
		rows = append(rows, row{
			at: r.Intended, prompt: r.PromptTokens, limit: max(r.CapTokens, output), output: output, index: r.Index,
			tenant: r.Tenant, class: r.Class, kind: r.Kind,
		})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.index, b.index)) })
	return rows, guessed
}
