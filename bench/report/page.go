package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Parse(page))

// Title is what the report is of.
func (r *Report) Title() string {
	if len(r.Runs) == 0 {
		return "No run that counts"
	}
	return cmp.Or(r.Runs[0].Experiment, r.Runs[0].Workload, "Runs") + " on " + r.Runs[0].On
}

// Summary says in a sentence what was run.
func (r *Report) Summary() string {
	text := fmt.Sprintf("%d runs: %d arms at %d rates. Objective: %s.", len(r.Runs), len(r.Arms), len(r.Rates), describeSLOs(r.SLOs))
	if n := len(r.Excluded); n > 0 {
		text += fmt.Sprintf(" %d runs do not count; they are listed below.", n)
	}
	return text
}

// Page writes one page that needs nothing but itself.
func (r *Report) Page(w io.Writer, tables []*Table, figures []*Figure) error {
	type picture struct {
		Alt string
		SVG template.HTML
	}
	data := struct {
		Title, Summary string
		Tables         []*Table
		Figures        []picture
	}{r.Title(), r.Summary(), tables, nil}
	for _, f := range figures {
		svg, err := f.SVG()
		if err != nil {
			return err
		}
		at := bytes.Index(svg, []byte("<svg"))
		if at < 0 {
			return fmt.Errorf("report: figure %s has no <svg>", f.Name)
		}
		// Drawn above: text in it, names of arms included, is escaped.
		data.Figures = append(data.Figures, picture{f.Alt, template.HTML(svg[at:])})
	}
	return pageTemplate.Execute(w, data)
}
