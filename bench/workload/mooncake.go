package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"time"
)

// mooncakeRow is a line of Mooncake's traces (Qin et al., 2024). Equal ids stand for equal blocks of blockTokens tokens
// behind equal beginnings.
type mooncakeRow struct {
	Timestamp    *float64 `json:"timestamp"` // ms since the trace's beginning
	InputLength  int      `json:"input_length"`
	OutputLength int      `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids"`
}

// maxLine bounds a line of JSON.
const maxLine = 16 << 20

// readMooncake reads one JSON object per line. Other keys are let pass.
func readMooncake(file string, content []byte) ([]row, error) {
	var rows []row
	err := lines(file, content, func(line int, text []byte) error {
		var m mooncakeRow
		if err := json.Unmarshal(text, &m); err != nil {
			return located(file, line, "%w", err)
		}
		blocks := (m.InputLength + blockTokens - 1) / blockTokens
		switch {
		case m.Timestamp == nil || !(*m.Timestamp >= 0 && *m.Timestamp < 1e12):
			return located(file, line, "timestamp is not there, or not from 0 to 1e12 (ms)")
		case m.InputLength < 1 || m.InputLength > maxTokens:
			return located(file, line, "input_length is %d, allowed: 1 to %d", m.InputLength, maxTokens)
		case m.OutputLength < 1 || m.OutputLength > maxTokens:
			return located(file, line, "output_length is %d, allowed: 1 to %d", m.OutputLength, maxTokens)
		case len(m.HashIDs) > blocks:
			return located(file, line, "hash_ids has %d ids, but input_length %d is of %d blocks", len(m.HashIDs), m.InputLength, blocks)
		}
		at := time.Duration(*m.Timestamp * float64(time.Millisecond))
		if n := len(rows); n > 0 && at < rows[n-1].at {
			return located(file, line, "timestamp is %v, before that of the line above", *m.Timestamp)
		}
		rows = append(rows, row{at: at, prompt: m.InputLength, limit: m.OutputLength, output: m.OutputLength, blocks: m.HashIDs})
		return nil
	})
	return rows, err
}

// lines calls f for each line that is not empty, numbered from 1.
func lines(file string, content []byte, f func(line int, text []byte) error) error {
	in := bufio.NewScanner(bytes.NewReader(content))
	in.Buffer(nil, maxLine)
	line := 0
	for in.Scan() {
		line++
		if text := bytes.TrimSpace(in.Bytes()); len(text) > 0 {
			if err := f(line, text); err != nil {
				return err
			}
		}
	}
	if err := in.Err(); err != nil {
		return located(file, line+1, "%w", err)
	}
	return nil
}
