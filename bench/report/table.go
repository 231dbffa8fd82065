package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table is a table for people. Columns from Left on are numbers, aligned right.
type Table struct {
	Name   string
	Title  string
	Header []string
	Rows   [][]string
	Left   int    // columns of words, ≥ 1
	Note   string // what must be known to read it
}

func (t *Table) add(cells ...string) { t.Rows = append(t.Rows, cells) }

// cell escapes what Markdown would take for its own.
var cell = strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;")

// Markdown writes the table with its note, without its title. Columns are padded, so that the source can be read too.
func (t *Table) Markdown() string {
	width := make([]int, len(t.Header))
	rows := make([][]string, 0, len(t.Rows)+1)
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		out := make([]string, len(row))
		for i, c := range row {
			out[i] = cell.Replace(c)
			width[i] = max(width[i], utf8.RuneCountInString(out[i]), 2)
		}
		rows = append(rows, out)
	}
	var b strings.Builder
	line := func(row []string) {
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i < t.Left {
				c += pad
			} else {
				c = pad + c
			}
			b.WriteString("| " + c + " ")
		}
		b.WriteString("|\n")
	}
	line(rows[0])
	for i, w := range width {
		if i < t.Left {
			b.WriteString("|" + strings.Repeat("-", w+2))
		} else {
			b.WriteString("|" + strings.Repeat("-", w+1) + ":")
		}
	}
	b.WriteString("|\n")
	for _, row := range rows[1:] {
		line(row)
	}
	if t.Note != "" {
		fmt.Fprintf(&b, "\n%s\n", cell.Replace(t.Note))
	}
	return b.String()
}

// Markdown writes tables under their titles.
func Markdown(title string, tables []*Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", cell.Replace(title))
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s", cell.Replace(t.Title), t.Markdown())
	}
	return b.String()
}

// Write writes tables to a terminal.
func Write(w io.Writer, tables []*Table) error {
	p := &printer.Printer{W: w}
	for i, t := range tables {
		if i > 0 {
			p.Line("")
		}
		p.Line("%s", t.Title)
		header := make([]any, len(t.Header))
		for i, h := range t.Header {
			header[i] = h
		}
		out := p.Table(header...)
		var columns []table.ColumnConfig
		for i := t.Left; i < len(t.Header); i++ {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight})
		}
		out.SetColumnConfigs(columns)
		for _, row := range t.Rows {
			cells := make(table.Row, len(row))
			for i, c := range row {
				cells[i] = c
			}
			out.AppendRow(cells)
		}
		p.Render(out)
		if t.Note != "" {
			p.Line("%s", t.Note)
		}
	}
	return p.Err
}
