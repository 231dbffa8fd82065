package calibrate

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Plot draws every step's time against what the profile says, on logarithmic axes with the diagonal; the file's extension
// (svg, png, pdf) chooses the form.
func (r *Report) Plot(file string) error {
	p := plot.New()
	p.Title.Text = r.Profile.Name
	p.X.Label.Text, p.Y.Label.Text = "by the profile (ms)", "measured (ms)"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	colors := map[string]color.NRGBA{"prefill": {R: 0x1f, G: 0x77, B: 0xb4, A: 0x90}, "decode": {R: 0x2c, G: 0xa0, B: 0x2c, A: 0x90}, "mixed": {R: 0xd6, G: 0x27, B: 0x28, A: 0x90}}
	least, most := 0.0, 0.0
	for _, kind := range []string{"prefill", "mixed", "decode"} {
		var points plotter.XYs
		for i := range r.Steps {
			s := &r.Steps[i]
			said, took := r.Profile.Step(s.Prefill, s.Decodes, s.Context).Seconds()*1e3, s.Took.Seconds()*1e3
			if s.Kind() != kind || said <= 0 || took <= 0 {
				continue
			}
			points = append(points, plotter.XY{X: said, Y: took})
			if least == 0 || said < least {
				least = said
			}
			most = max(most, said)
		}
		if len(points) == 0 {
			continue
		}
		s, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("calibrate: plot: %w", err)
		}
		s.GlyphStyle = draw.GlyphStyle{Color: colors[kind], Radius: vg.Points(1.5), Shape: draw.CircleGlyph{}}
		p.Add(s)
		p.Legend.Add(kind, s)
	}
	if most > least {
		diagonal, err := plotter.NewLine(plotter.XYs{{X: least, Y: least}, {X: most, Y: most}})
		if err != nil {
			return fmt.Errorf("calibrate: plot: %w", err)
		}
		p.Add(diagonal)
	}
	p.Legend.Left, p.Legend.Top = true, true
	if err := p.Save(14*vg.Centimeter, 12*vg.Centimeter, file); err != nil {
		return fmt.Errorf("calibrate: plot: %w", err)
	}
	return nil
}
