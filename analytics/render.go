package analytics

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// ErrFormat is returned for a format that Render does not know.
var ErrFormat = errors.New("analytics: unknown output format, want table, json or csv")

// Format is how Render writes a result.
type Format string

// The formats.
const (
	FormatTable Format = "table" // aligned columns for people; long values are cut
	FormatJSON  Format = "json"  // one array of objects
	FormatCSV   Format = "csv"   // RFC 4180 with a header; null is empty
)

// Render writes rows to w and returns how many there were. It reads them as it writes,
// and does not close them. What was written before an error is incomplete.
func Render(w io.Writer, rows *Rows, format Format) (int, error) {
	out := bufio.NewWriter(w)
	var n int
	var err error
	switch format {
	case FormatTable:
		n, err = renderTable(out, rows)
	case FormatJSON:
		n, err = renderJSON(out, rows)
	case FormatCSV:
		n, err = renderCSV(out, rows)
	default:
		return 0, fmt.Errorf("%w: %q", ErrFormat, format)
	}
	return n, errors.Join(err, out.Flush())
}

func renderJSON(out *bufio.Writer, rows *Rows) (int, error) {
	keys := make([][]byte, len(rows.Columns()))
	for i, c := range rows.Columns() {
		key, err := json.Marshal(c.Name)
		if err != nil {
			return 0, fmt.Errorf("analytics: column name: %w", err)
		}
		keys[i] = append(key, ':')
	}
	n := 0
	// A bufio.Writer keeps its first error until Flush.
	_ = out.WriteByte('[')
	for rows.Next() {
		if n > 0 {
			_ = out.WriteByte(',')
		}
		_, _ = out.WriteString("\n{")
		for i, value := range rows.Values() {
			if i > 0 {
				_ = out.WriteByte(',')
			}
			_, _ = out.Write(keys[i])
			_, _ = out.Write(value)
		}
		_ = out.WriteByte('}')
		n++
	}
	if n > 0 {
		_ = out.WriteByte('\n')
	}
	_, _ = out.WriteString("]\n")
	return n, rows.Err()
}

func renderCSV(out *bufio.Writer, rows *Rows) (int, error) {
	w := csv.NewWriter(out)
	record := make([]string, len(rows.Columns()))
	for i, c := range rows.Columns() {
		record[i] = c.Name
	}
	n := 0
	if len(record) > 0 {
		if err := w.Write(record); err != nil {
			return 0, err
		}
	}
	for rows.Next() {
		for i, value := range rows.Values() {
			text, null, err := plain(value)
			if err != nil {
				return n, err
			}
			if null {
				text = ""
			}
			record[i] = text
		}
		if err := w.Write(record); err != nil {
			return n, err
		}
		n++
	}
	w.Flush()
	return n, errors.Join(rows.Err(), w.Error())
}

const (
	// tableBlock is how many rows are aligned together.
	tableBlock = 1000
	// tableCell is the widest cell, in terminal columns.
	tableCell = 64
)

// renderTable aligns blocks of rows, so that a long result neither waits for its end nor
// fills the memory. A column never gets narrower from one block to the next.
func renderTable(out *bufio.Writer, rows *Rows) (int, error) {
	columns := rows.Columns()
	if len(columns) == 0 {
		return 0, rows.Err()
	}
	widths := make([]int, len(columns))
	right := make([]bool, len(columns))
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = cell(c.Name)
		right[i] = numeric(c.Type)
	}
	block := [][]string{header}
	n := 0
	flush := func() {
		for _, cells := range block {
			for i, c := range cells {
				widths[i] = max(widths[i], runewidth.StringWidth(c))
			}
		}
		for _, cells := range block {
			writeCells(out, cells, widths, right)
		}
		block = block[:0]
	}
	for rows.Next() {
		cells := make([]string, len(columns))
		for i, value := range rows.Values() {
			text, null, err := plain(value)
			if err != nil {
				return n, err
			}
			if null {
				text = "NULL"
			}
			cells[i] = cell(text)
		}
		if block = append(block, cells); len(block) > tableBlock {
			flush()
		}
		n++
	}
	flush()
	return n, rows.Err()
}

func writeCells(out *bufio.Writer, cells []string, widths []int, right []bool) {
	for i, c := range cells {
		pad := strings.Repeat(" ", widths[i]-runewidth.StringWidth(c))
		last := i == len(cells)-1
		switch {
		case right[i]:
			_, _ = out.WriteString(pad + c)
		case last:
			_, _ = out.WriteString(c)
		default:
			_, _ = out.WriteString(c + pad)
		}
		if !last {
			_, _ = out.WriteString("  ")
		}
	}
	_ = out.WriteByte('\n')
}

// cell makes text fit one line of a table. Control characters would move the cursor.
func cell(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return runewidth.Truncate(text, tableCell, "…")
}

// plain returns a JSON value as text: a string's content, anything else as it stands.
func plain(value json.RawMessage) (text string, null bool, err error) {
	switch {
	case len(value) == 0 || string(value) == "null":
		return "", true, nil
	case value[0] != '"':
		return string(value), false, nil
	}
	if err := json.Unmarshal(value, &text); err != nil {
		return "", false, fmt.Errorf("analytics: result value %.100q: %w", value, err)
	}
	return text, false, nil
}

// numeric reports whether a column of the type is aligned to the right.
func numeric(typ string) bool {
	for _, wrapper := range []string{"LowCardinality(", "Nullable("} {
		typ = strings.TrimPrefix(typ, wrapper)
	}
	for _, prefix := range []string{"Int", "UInt", "Float", "BFloat", "Decimal"} {
		if strings.HasPrefix(typ, prefix) {
			return true
		}
	}
	return false
}
