package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is panels in rows beside one legend. It draws the same picture every time.
type Figure struct {
	Name  string
	Title string
	Note  string // below the title
	Alt   string // what it shows, for those who cannot see it

	panels [][]*axes
	legend []legendEntry
	w, h   vg.Length
}

type legendEntry struct {
	name   string
	thumbs []plot.Thumbnailer
}

// resolution of PNG files, in dots per inch.
const resolution = 144

// SVG returns the figure as a document without a font of its own.
func (f *Figure) SVG() ([]byte, error) {
	c := vgsvg.New(f.w, f.h)
	f.draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("report: figure %s: %w", f.Name, err)
	}
	// The widths are Liberation Sans's, which are those of Arial and Helvetica; "sans" is no value of font-variant.
	out := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;font-variant:sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return bytes.ReplaceAll(out, []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// PNG returns the figure as an image.
func (f *Figure) PNG() ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(f.w, f.h), vgimg.UseDPI(resolution))
	f.draw(draw.New(c))
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&b); err != nil {
		return nil, fmt.Errorf("report: figure %s: %w", f.Name, err)
	}
	return b.Bytes(), nil
}

// Save writes figures into a directory, each as SVG and PNG.
func Save(dir string, figures []*Figure) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range figures {
		svg, err := f.SVG()
		if err != nil {
			return err
		}
		png, err := f.PNG()
		if err != nil {
			return err
		}
		for ext, b := range map[string][]byte{".svg": svg, ".png": png} {
			if err := os.WriteFile(filepath.Join(dir, f.Name+ext), b, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sizes.
const (
	margin    = vg.Length(8)
	gap       = vg.Length(16)
	textSize  = vg.Length(9)
	thumbnail = vg.Length(26)
)

var (
	ink  = color.RGBA{0x22, 0x22, 0x22, 0xff}
	pale = color.RGBA{0x66, 0x66, 0x66, 0xff}
	hair = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
)

func style(size vg.Length, c color.Color) text.Style {
	return text.Style{Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: plot.DefaultTextHandler, YAlign: draw.YTop}
}

// draw draws the title, the panels on the left and the legend on the right.
func (f *Figure) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	title := style(12, ink)
	c.FillText(title, vg.Point{X: c.Min.X, Y: c.Max.Y}, f.Title)
	c.Max.Y -= 18
	if f.Note != "" {
		c.FillText(style(textSize, pale), vg.Point{X: c.Min.X, Y: c.Max.Y}, f.Note)
		c.Max.Y -= 16
	}
	width := f.legendWidth()
	f.drawLegend(draw.Crop(c, c.Size().X-width, 0, 0, 0))
	area := draw.Crop(c, 0, -width-gap, 0, -18) // above the panels, for what stands over the y axis
	tiles := draw.Tiles{Rows: len(f.panels), Cols: len(f.panels[0]), PadX: gap, PadY: 2 * gap}
	plots := make([][]*plot.Plot, len(f.panels))
	for i, row := range f.panels {
		for _, p := range row {
			plots[i] = append(plots[i], p.Plot)
		}
	}
	heading := style(textSize, ink)
	heading.YAlign = draw.YBottom
	aligned := plot.Align(plots, tiles, area)
	for i, row := range aligned {
		for j, at := range row {
			p := f.panels[i][j]
			p.Draw(at)
			data := p.DataCanvas(at)
			left := at.Min.X
			for _, other := range aligned {
				left = min(left, other[j].Min.X)
			}
			c.FillText(heading, vg.Point{X: left, Y: data.Max.Y + 7}, p.y)
		}
	}
}

func (f *Figure) legendWidth() vg.Length {
	s := style(textSize, ink)
	width := vg.Length(0)
	for _, e := range f.legend {
		width = max(width, s.Rectangle(e.name).Size().X)
	}
	return thumbnail + 6 + width
}

func (f *Figure) drawLegend(c draw.Canvas) {
	s := style(textSize, ink)
	s.YAlign = draw.YCenter
	const height = vg.Length(16)
	y := c.Max.Y - height
	for _, e := range f.legend {
		at := &draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: c.Min.X, Y: y + 2}, Max: vg.Point{X: c.Min.X + thumbnail, Y: y + height - 2}}}
		for _, t := range e.thumbs {
			t.Thumbnail(at)
		}
		c.FillText(s, vg.Point{X: c.Min.X + thumbnail + 6, Y: y + height/2}, e.name)
		y -= height
	}
}

// axes are a plot whose y axis is named above it, where it can be read.
type axes struct {
	*plot.Plot
	y string
}

// panel returns empty axes in the house's style.
func panel(x, y string) *axes {
	p := &axes{plot.New(), y}
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = style(textSize, ink).Font
		a.Label.TextStyle.Color = ink
		a.Label.Padding = 4
		a.Tick.Label.Font = style(textSize-1, ink).Font
		a.Tick.Label.Color = ink
		a.LineStyle.Color, a.Tick.LineStyle.Color = pale, pale
		a.Padding = 0
		a.Tick.Marker = linearTicks{}
	}
	p.X.Label.Text = x
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = hair, hair
	p.Add(grid)
	return p
}

// logarithmic makes an axis logarithmic, over what it holds.
func logarithmic(a *plot.Axis) {
	if !(a.Min > 0) || math.IsInf(a.Min, 0) {
		a.Min, a.Max = 0.1, 1 // nothing to show
	}
	a.Min, a.Max = a.Min/1.15, a.Max*1.15
	a.Scale = plot.LogScale{}
	a.Tick.Marker = logTicks{}
}

// linearTicks are four to nine round numbers.
type linearTicks struct{}

// Ticks implements plot.Ticker.
func (linearTicks) Ticks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, d := range []float64{5, 2.5, 2} {
		if (high-low)/(d*step) >= 4 {
			step *= d
			break
		}
	}
	var out []plot.Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		out = append(out, plot.Tick{Value: i * step, Label: number(i * step)})
	}
	return out
}

// logTicks labels 1, 2 and 5 of each decade as plain numbers where that leaves room, else the decades; 3 and 7 too where
// there is hardly one.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	decades := math.Log10(high / low)
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for d := 1.0; d < 10; d++ {
			t := plot.Tick{Value: d * math.Pow(10, e)}
			if t.Value < low || t.Value > high {
				continue
			}
			if d == 1 || decades < 3 && (d == 2 || d == 5) || decades < 1.2 && (d == 3 || d == 7) {
				t.Label = number(t.Value)
			}
			out = append(out, t)
		}
	}
	return out
}

// look is how the i-th arm is drawn: colours that people with any colour vision tell apart (Okabe and Ito, 2008), and
// dashes and marks for print without colour.
type look struct {
	color  color.RGBA
	dashes []vg.Length
	shape  draw.GlyphDrawer
}

func lookOf(i int) look {
	colors := []color.RGBA{{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x00, 0x00, 0x00, 0xff}}
	dashes := [][]vg.Length{nil, {6, 2}, {2, 2}, {7, 2, 2, 2}, {10, 3}}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}
	return look{colors[i%len(colors)], dashes[i%len(dashes)], shapes[i%len(shapes)]}
}

func (l look) line() draw.LineStyle {
	return draw.LineStyle{Color: l.color, Width: 1.4, Dashes: l.dashes}
}

// reference is the style of lines that are no measurement.
func reference() draw.LineStyle {
	return draw.LineStyle{Color: pale, Width: 1, Dashes: []vg.Length{3, 3}}
}

// lines adds a line through points, with marks if it has a shape, and returns what the legend shows of it.
func lines(p *axes, points plotter.XYs, s draw.LineStyle, shape draw.GlyphDrawer) []plot.Thumbnailer {
	line := &plotter.Line{XYs: points, LineStyle: s}
	thumbs := []plot.Thumbnailer{line}
	if len(points) > 0 {
		p.Add(line)
	}
	if shape != nil {
		marks := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: s.Color, Radius: 2.6, Shape: shape}}
		thumbs = append(thumbs, marks)
		if len(points) > 0 {
			p.Add(marks)
		}
	}
	return thumbs
}

// band fills between low and high, which have the same x.
func band(p *axes, low, high plotter.XYs, c color.RGBA) {
	if len(low) < 2 {
		return
	}
	ring := append(plotter.XYs{}, low...)
	for i := len(high) - 1; i >= 0; i-- {
		ring = append(ring, high[i])
	}
	p.Add(&plotter.Polygon{XYs: []plotter.XYs{ring}, Color: color.NRGBA{c.R, c.G, c.B, 0x2c}})
}

// zones are stretches of the x axis that are shaded from top to bottom. They do not change the axes.
type zones [][2]float64

// Plot implements plot.Plotter.
func (z zones) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	c.SetColor(color.NRGBA{0, 0, 0, 0x12})
	for _, s := range z {
		if s[1] > s[0] {
			c.Fill(vg.Rectangle{Min: vg.Point{X: x(s[0]), Y: c.Min.Y}, Max: vg.Point{X: x(s[1]), Y: c.Max.Y}}.Path())
		}
	}
}
