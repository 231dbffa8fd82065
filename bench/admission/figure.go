package admission

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// metric is what a figure shows of cells: a value and the ends of its band; not ok: there is none.
type metric struct {
	file, title, y string
	log            bool
	of             func(c *Cell) (value, low, high float64, ok bool)
}

var metrics = []metric{
	{"admission-goodput", "Goodput against offered load", "goodput (req/s)", false, func(c *Cell) (float64, float64, float64, bool) {
		return c.Goodput.Value, c.Least, c.Most, true
	}},
	{"admission-p99", "p99 E2E of admitted requests against offered load", "p99 E2E (s)", true, func(c *Cell) (float64, float64, float64, bool) {
		return c.P99.Mean, c.P99.Min, c.P99.Max, c.P99.Count > 0
	}},
}

// Save draws goodput and admitted p99 against the offered load into a directory, as SVG: arms without bounds on the left and with
// them on the right, no admission and the marginal rule on either side.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("admission: figures: %w", err)
	}
	for i := range metrics {
		b, err := r.draw(&metrics[i])
		if err != nil {
			return fmt.Errorf("admission: figures: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, metrics[i].file+".svg"), b, 0o644); err != nil {
			return fmt.Errorf("admission: figures: %w", err)
		}
	}
	return nil
}

// draw returns a figure.
func (r *Report) draw(m *metric) ([]byte, error) {
	var panels []*plot.Plot
	for _, group := range []string{limits, bounded} {
		p, err := r.panel(m, group)
		if err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	// Both have the same axes, so that arms can be compared from one to the other.
	a, b := panels[0], panels[1]
	for _, axis := range [][2]*plot.Axis{{&a.X, &b.X}, {&a.Y, &b.Y}} {
		low, high := min(axis[0].Min, axis[1].Min), max(axis[0].Max, axis[1].Max)
		for _, x := range axis {
			x.Min, x.Max = low, high
		}
	}
	return sheet(fmt.Sprintf("%s. Lines: means; bands: least to largest of %d seeds", m.title, len(r.Seeds)), panels)
}

// sheet is a figure of panels side by side, as SVG.
func sheet(caption string, panels []*plot.Plot) ([]byte, error) {
	const each, height, head = 13 * vg.Centimeter, 11 * vg.Centimeter, 24
	canvas := vgsvg.New(vg.Length(max(2, len(panels)))*each, height) // two at least, for the caption
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	title := plot.New().Title.TextStyle
	title.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 12}
	title.XAlign, title.YAlign = draw.XLeft, draw.YTop
	c.FillText(title, vg.Point{X: 8, Y: height - 6}, caption)
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: 12, PadTop: head, PadLeft: 6, PadRight: 10, PadBottom: 6}
	for i, at := range plot.Align([][]*plot.Plot{panels}, tiles, c)[0] {
		panels[i].Draw(at)
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	// The widths are Liberation Sans's, which are those of Arial and Helvetica; "sans" is no value of font-variant.
	const sans = "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"
	svg := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;font-variant:sans;"), []byte(sans))
	return bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans;"), []byte(sans)), nil
}

// axes is a panel without lines.
func axes(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "offered load (multiples of the best goodput without admission)", y
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	p.Title.TextStyle.Font, p.Legend.TextStyle.Font = sans, sans
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = sans, sans
	}
	p.Legend.Top, p.Legend.Left, p.Legend.ThumbnailWidth = true, true, 26
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe4}, color.Gray{0xe4}
	p.Add(grid)
	return p
}

// panel draws the arms of a group and those that are in either.
func (r *Report) panel(m *metric, group string) (*plot.Plot, error) {
	p := axes(group, m.y)
	drawn := 0
	for i := range r.Arms {
		a := find(r.Arms[i].Arm)
		if a.group != both && a.group != group {
			continue
		}
		if err := r.curve(p, m, a.name, drawn); err != nil {
			return nil, err
		}
		drawn++
	}
	if m.log {
		slo := plotter.NewFunction(func(float64) float64 { return r.SLO.Seconds() })
		slo.LineStyle = draw.LineStyle{Color: color.Gray{0x66}, Width: 1, Dashes: []vg.Length{3, 3}}
		p.Add(slo)
		p.Legend.Add("objective", slo)
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Y.Min, p.Y.Max = min(p.Y.Min, r.SLO.Seconds())/1.2, max(p.Y.Max, r.SLO.Seconds())*6 // room for the legend
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.7
	}
	p.X.Min = 0
	return p, nil
}

// find returns an arm of the report.
func find(name string) *arm {
	for i := range every {
		if every[i].name == name {
			return &every[i]
		}
	}
	return &arm{name: name}
}

// Colours that people with any colour vision tell apart (Okabe and Ito, 2008), and dashes for print without colour.
var (
	colors = []color.RGBA{{0x00, 0x00, 0x00, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff},
		{0x56, 0xb4, 0xe9, 0xff}, {0x77, 0x77, 0x77, 0xff}}
	dashes = [][]vg.Length{{2, 2}, {6, 2}, {7, 2, 2, 2}, nil, {10, 3}}
	own    = color.RGBA{0x00, 0x72, 0xb2, 0xff}
)

// curve draws an arm with its band.
func (r *Report) curve(p *plot.Plot, m *metric, name string, i int) error {
	var x, y, low, high []float64
	for k := range r.Cells {
		c := &r.Cells[k]
		if c.Arm != name {
			continue
		}
		value, least, most, ok := m.of(c)
		if !ok || m.log && least <= 0 {
			continue
		}
		x, y, low, high = append(x, c.Load), append(y, value), append(low, least), append(high, most)
	}
	style := draw.LineStyle{Color: colors[i%len(colors)], Width: 1.2, Dashes: dashes[i%len(dashes)]}
	if name == "marginal" {
		style = draw.LineStyle{Color: own, Width: 2.2}
	}
	return ribbon(p, name, style, x, y, low, high)
}

// ribbon draws a line in its band. Nothing is drawn of no points.
func ribbon(p *plot.Plot, name string, style draw.LineStyle, x, y, low, high []float64) error {
	if len(x) == 0 {
		return nil
	}
	var points, ring plotter.XYs
	for i := range x {
		points = append(points, plotter.XY{X: x[i], Y: y[i]})
		ring = append(ring, plotter.XY{X: x[i], Y: low[i]})
	}
	for i := range x {
		k := len(x) - 1 - i
		ring = append(ring, plotter.XY{X: x[k], Y: high[k]})
	}
	band, err := plotter.NewPolygon(ring)
	if err != nil {
		return err
	}
	red, green, blue, _ := style.Color.RGBA()
	band.Color, band.Width = color.NRGBA{uint8(red >> 8), uint8(green >> 8), uint8(blue >> 8), 0x26}, 0
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.LineStyle = style
	p.Add(band, line)
	p.Legend.Add(name, line)
	return nil
}
