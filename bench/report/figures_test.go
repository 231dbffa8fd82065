package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"image/png"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

var lookAt = flag.String("look", "", "write the figures and the page of a larger grid into this directory, to look at them")

func TestFigures(t *testing.T) {
	r := generated(t)
	if *lookAt != "" {
		dir := t.TempDir()
		generate(t, dir, grid{arms: ladder, rates: []float64{0.4, 0.6, 1, 1.4, 1.9, 2.6, 4}, seeds: 3, length: 180 * time.Second, slo: 6 * time.Second})
		r = load(t, dir, Options{})
	}
	figures, err := r.Figures()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range figures {
		names = append(names, f.Name)
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		again, err := f.SVG()
		if err != nil || !bytes.Equal(svg, again) {
			t.Errorf("%s is drawn differently the second time, %v", f.Name, err)
		}
		d := xml.NewDecoder(bytes.NewReader(svg))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", f.Name, err)
		}
		for _, want := range append([]string{f.Title, "(s)"}, r.Arms...) {
			if want == "(s)" && (f.Name == "goodput" || f.Name == "shed") {
				want = "(req/s)"
			}
			if !bytes.Contains(svg, []byte(want)) && !bytes.Contains(svg, []byte(strings.ReplaceAll(want, "+", "&#43;"))) {
				t.Errorf("%s does not say %q", f.Name, want)
			}
		}
		if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s has coordinates that are no numbers", f.Name)
		}
		b, err := f.PNG()
		if err != nil {
			t.Fatal(err)
		}
		if img, err := png.Decode(bytes.NewReader(b)); err != nil || img.Bounds().Dx() < 900 {
			t.Errorf("%s: %v, %v", f.Name, img.Bounds(), err)
		}
	}
	if got := strings.Join(names, " "); got != "goodput latency shed cdf timeline" {
		t.Error(got)
	}
	dir := t.TempDir()
	if *lookAt != "" {
		dir = *lookAt
	}
	if err := Save(dir, figures); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) < 10 {
		t.Errorf("%d files, %v", len(files), err)
	}
	tables, err := r.Tables()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Page(&b, tables, figures); err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"<script", "<link", "src=", "@import", "url("} {
		if strings.Contains(b.String(), not) {
			t.Errorf("the page has %s", not)
		}
	}
	if got := strings.Count(b.String(), "<svg"); got != len(figures) {
		t.Errorf("the page has %d figures", got)
	}
	for _, table := range tables {
		if !strings.Contains(b.String(), `id="`+table.Name+`"`) {
			t.Errorf("the page has no table %s", table.Name)
		}
	}
	if *lookAt != "" {
		put(t, dir+"/page.html", b.String())
		put(t, dir+"/tables.md", Markdown(r.Title(), tables))
	}
}

// Arms whose names would be markup, that answer nothing, and only one rate.
func TestFiguresOfLittle(t *testing.T) {
	dir := t.TempDir()
	run := &record.Run{ID: "a", On: "sim", Arm: `<script>alert("x")</script>`, Rate: 1, Seed: 1, Length: 10 * time.Second, SLOs: map[string]record.SLO{"": {E2E: time.Second}}}
	write(t, dir+"/a", run, []record.Request{{Phase: record.Measure, Outcome: record.Shed, Reason: "capacity", TTFT: -1, Queued: -1}})
	r := load(t, dir, Options{})
	figures, err := r.Figures()
	if err != nil || len(figures) != 2 {
		t.Fatalf("%d figures, %v", len(figures), err)
	}
	tables, err := r.Tables()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Page(&b, tables, figures); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "<script") {
		t.Error("an arm's name is markup in the page")
	}
	if strings.Contains(Markdown(r.Title(), tables), "<script") {
		t.Error("an arm's name is markup in Markdown")
	}
}
