// Package printer writes the reports of benchmarks for people.
package printer

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Printer writes lines and tables to W and keeps its first error, after which it writes nothing.
type Printer struct {
	W   io.Writer
	Err error
}

// Line writes a line.
func (p *Printer) Line(format string, args ...any) {
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.W, format+"\n", args...)
	}
}

// Table returns an empty table whose columns but the first are aligned right.
func (p *Printer) Table(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	configs := make([]table.ColumnConfig, 0, len(header))
	for i := 2; i <= len(header); i++ {
		configs = append(configs, table.ColumnConfig{Number: i, Align: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	return t
}

// Render writes a table.
func (p *Printer) Render(t table.Writer) { p.Line("%s", t.Render()) }
