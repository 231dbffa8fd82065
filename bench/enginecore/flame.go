package enginecore

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// frame is a function in the tree of calls, with the time of everything below.
type frame struct {
	name  string
	time  time.Duration
	calls map[string]*frame
}

func (f *frame) call(name string) *frame {
	if f.calls == nil {
		f.calls = map[string]*frame{}
	}
	c := f.calls[name]
	if c == nil {
		c = &frame{name: name}
		f.calls[name] = c
	}
	return c
}

// depth is the longest way down that is drawn.
func (f *frame) depth(least time.Duration) int {
	n := 0
	for _, c := range f.calls {
		if c.time >= least {
			n = max(n, c.depth(least))
		}
	}
	return n + 1
}

// Sizes of the picture, in pixels.
const (
	flameWidth  = 1400
	flameRow    = 17
	flameLetter = 6.4 // width of one
	flameLeast  = 0.4 // width of the narrowest frame that is drawn
	flameTop    = 44
)

// flame draws a CPU profile as a flame graph: a self-contained SVG whose frames tell their time when pointed at. The
// outermost function is at the bottom; what a function calls stands on it, in alphabetical order.
func flame(w io.Writer, p *profile.Profile, title string) error {
	root := &frame{name: "all"}
	for _, s := range p.Sample {
		cpu := cpuOf(s)
		root.time += cpu
		at := root
		for _, name := range slices.Backward(stackOf(s)) {
			at = at.call(name)
			at.time += cpu
		}
	}
	least := time.Duration(float64(root.time) * flameLeast / flameWidth)
	height := flameTop + root.depth(least)*flameRow + 10
	d := &drawing{w: bufio.NewWriter(w), all: root.time, least: least, bottom: height - 10}
	d.print(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="monospace" font-size="11">`+"\n", flameWidth, height, flameWidth, height)
	d.print(`<rect width="100%%" height="100%%" fill="#ffffff"/>` + "\n")
	d.print(`<text x="10" y="18" font-size="14">%s</text>`+"\n", escape(title))
	d.print(`<text x="10" y="34">%s of CPU time, %d samples; width is time, colour is owner</text>`+"\n", root.time.Round(time.Millisecond), samplesOf(p))
	d.frame(root, 0, 0, nil)
	d.print("</svg>\n")
	if d.err != nil {
		return d.err
	}
	return d.w.Flush()
}

func samplesOf(p *profile.Profile) (n int64) {
	for _, s := range p.Sample {
		n += s.Value[0]
	}
	return n
}

type drawing struct {
	w      *bufio.Writer
	all    time.Duration
	least  time.Duration
	bottom int
	err    error
}

func (d *drawing) print(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format, args...)
	}
}

// frame draws f, which begins after so much time of its row, and what it calls. stack has its callers, the innermost
// first.
func (d *drawing) frame(f *frame, at time.Duration, level int, stack []string) {
	if f.time < d.least || d.all == 0 {
		return
	}
	stack = append([]string{f.name}, stack...)
	x := float64(at) / float64(d.all) * flameWidth
	width := float64(f.time) / float64(d.all) * flameWidth
	y := d.bottom - (level+1)*flameRow
	d.print(`<g><title>%s: %s, %.2f %%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="#fff" stroke-width="0.5"/>`,
		escape(f.name), f.time.Round(time.Millisecond), 100*ratio(f.time, d.all), x, y, width, flameRow-1, colour(owners.Of(stack)))
	if room := int((width - 6) / flameLetter); room >= 3 {
		d.print(`<text x="%.1f" y="%d">%s</text>`, x+3, y+12, escape(short(f.name, room)))
	}
	d.print("</g>\n")
	for _, name := range slices.SortedFunc(maps.Keys(f.calls), cmp.Compare[string]) {
		c := f.calls[name]
		d.frame(c, at, level+1, stack)
		at += c.time
	}
}

// short is a function's name without its package's path, in so many letters.
func short(name string, room int) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if len(name) > room {
		name = name[:room-1] + "…"
	}
	return name
}

// colour is an owner's, the same in every picture.
func colour(owner string) string {
	switch owner {
	case decode:
		return "#f4a261"
	case "other":
		return "#d8d8d8"
	}
	h := fnv.New32a()
	h.Write([]byte(owner))
	return fmt.Sprintf("hsl(%d,55%%,72%%)", h.Sum32()%360)
}

// escape makes text safe inside an element.
func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}
