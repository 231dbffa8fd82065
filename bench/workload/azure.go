package workload

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// azureColumns are those of Microsoft's public traces of LLM inference (Patel et al., Splitwise, 2024).
var azureColumns = []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}

// azureTimes are the forms of a TIMESTAMP in the traces of 2023 and 2024.
var azureTimes = []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"}

// readAzure reads a CSV of azureColumns, in any order and among others. Times count from its first row.
func readAzure(file string, content []byte) ([]row, error) {
	in := csv.NewReader(bytes.NewReader(content))
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil {
		return nil, located(file, 1, "no header: %w", err)
	}
	var at [3]int
	for i, name := range azureColumns {
		if at[i] = slices.Index(header, name); at[i] < 0 {
			return nil, located(file, 1, "there is no column %s, wanted: %s", name, strings.Join(azureColumns, ","))
		}
	}
	var rows []row
	var first, last time.Time
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			var parse *csv.ParseError
			if errors.As(err, &parse) {
				return nil, located(file, parse.Line, "%w", parse.Err)
			}
			return nil, located(file, len(rows)+2, "%w", err)
		}
		line, _ := in.FieldPos(0)
		when, err := azureTime(fields[at[0]])
		if err != nil {
			return nil, located(file, line, "%s is %q, wanted: like %s", azureColumns[0], fields[at[0]], azureTimes[0])
		}
		if len(rows) == 0 {
			first, last = when, when
		}
		if when.Before(last) {
			return nil, located(file, line, "%s is %q, before that of the row above", azureColumns[0], fields[at[0]])
		}
		last = when
		var tokens [2]int
		for i := range tokens {
			text := fields[at[1+i]]
			if tokens[i], err = strconv.Atoi(text); err != nil || tokens[i] < 1 || tokens[i] > maxTokens {
				return nil, located(file, line, "%s is %q, allowed: 1 to %d", azureColumns[1+i], text, maxTokens)
			}
		}
		rows = append(rows, row{at: when.Sub(first), prompt: tokens[0], limit: tokens[1], output: tokens[1]})
	}
}

func azureTime(text string) (t time.Time, err error) {
	for _, form := range azureTimes { // a fraction of a second is read whether the form has it or not
		if t, err = time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return t, err
}
