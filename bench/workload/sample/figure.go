package sample

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Colours that people with any colour vision tell apart (Okabe and Ito, 2008), and dashes for print without colour.
var (
	colors = []color.RGBA{{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x00, 0x00, 0x00, 0xff}}
	dashes = [][]vg.Length{nil, {6, 2}, {2, 2}, {7, 2, 2, 2}}
)

// PNG draws which part of the requests has at most how many tokens, of prompt, cap and answer, by kind where there are
// several, else by tenant, else of all.
func (r *Report) PNG() ([]byte, error) {
	shown := r.Groups[:1]
	for _, by := range []string{"tenant", "kind"} {
		var of []Group
		for _, g := range r.Groups {
			if g.By == by {
				of = append(of, g)
			}
		}
		if len(of) > 1 {
			shown = of
		}
	}
	panels := [][]*plot.Plot{nil}
	legend := plot.NewLegend()
	legend.TextStyle.Font = sans(10)
	legend.Top, legend.Left, legend.Padding = true, true, 4
	for i, c := range []struct {
		title string
		of    func(*Group) *Lengths
	}{
		{"prompt", func(g *Group) *Lengths { return &g.Prompt }},
		{"cap (max_tokens)", func(g *Group) *Lengths { return &g.Cap }},
		{"answer", func(g *Group) *Lengths { return &g.Output }},
	} {
		p := plot.New()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, "tokens", "part with at most"
		p.Title.TextStyle.Font, p.Title.Padding = sans(11), 6
		for _, a := range []*plot.Axis{&p.X, &p.Y} {
			a.Label.TextStyle.Font, a.Tick.Label.Font, a.Padding = sans(10), sans(9), 0
			a.Tick.Marker = plot.TickerFunc(ticks)
		}
		grid := plotter.NewGrid()
		grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe4}, color.Gray{0xe4}
		p.Add(grid)
		for j := range shown {
			g := &shown[j]
			line := &plotter.Line{XYs: distribution(c.of(g).Values), StepStyle: plotter.PostStep,
				LineStyle: draw.LineStyle{Color: colors[j%len(colors)], Width: 1.6, Dashes: dashes[j%len(dashes)]}}
			p.Add(line)
			if i == 0 {
				legend.Add(g.label(), line)
			}
		}
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, max(1, 1.05*p.X.Max), 0, 1.02
		panels[0] = append(panels[0], p)
	}
	c := vgimg.NewWith(vgimg.UseWH(10*vg.Inch, 3.2*vg.Inch), vgimg.UseDPI(144))
	area := draw.New(c)
	area.SetColor(color.White)
	area.Fill(area.Rectangle.Path())
	area = draw.Crop(area, 10, -10, 10, -10)
	title := panels[0][0].Title.TextStyle
	title.Font, title.XAlign, title.YAlign = sans(12), draw.XLeft, draw.YTop
	area.FillText(title, vg.Point{X: area.Min.X, Y: area.Max.Y}, fmt.Sprintf("%s: the first %d requests", r.Workload, r.Requests))
	area.Max.Y -= 24
	const legendWidth = 110
	legend.Draw(draw.Crop(area, area.Size().X-legendWidth, 0, 0, -20))
	area.Max.X -= legendWidth + 10
	tiles := draw.Tiles{Rows: 1, Cols: len(panels[0]), PadX: 14}
	for i, at := range plot.Align(panels, tiles, area)[0] {
		panels[0][i].Draw(at)
	}
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// ticks are the usual ones, with as few digits as they need.
func ticks(low, high float64) []plot.Tick {
	out := plot.DefaultTicks{}.Ticks(low, high)
	for i := range out {
		if out[i].Label != "" {
			out[i].Label = strconv.FormatFloat(math.Round(out[i].Value*1e6)/1e6, 'f', -1, 64)
		}
	}
	return out
}

// distribution is the empirical distribution function of ascending values, from 0 at 0.
func distribution(values []float64) plotter.XYs {
	out := plotter.XYs{{X: 0, Y: 0}}
	for i := 0; i < len(values); {
		n, _ := slices.BinarySearch(values, values[i]+0.5) // the values are whole
		out = append(out, plotter.XY{X: values[i], Y: float64(n) / float64(len(values))})
		i = n
	}
	return out
}
