package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cadence-slo/cadence/worker/gguf"
	"github.com/cadence-slo/cadence/worker/modelfile"
	"github.com/jedib0t/go-pretty/v6/table"
)

// ModelCmd groups the commands about model files.
type ModelCmd struct {
	Synth   SynthCmd   `cmd:"" help:"Make a model of random weights: it costs what a real one of its shape costs, and says nothing."`
	Pull    PullCmd    `cmd:"" help:"Download a model: resumable and verified."`
	Inspect InspectCmd `cmd:"" help:"Show what is in a GGUF file."`
	List    ListCmd    `cmd:"" help:"List the models here and those that pull knows."`
}

// Help implements kong.HelpProvider.
func (ModelCmd) Help() string {
	return "Examples:\n  cadence model list\n  cadence model synth tiny\n  cadence model inspect synth:tiny"
}

// SynthCmd makes a synthetic model.
type SynthCmd struct {
	Preset   string `arg:"" help:"shape: tiny (6 M parameters), 120m, or 0.5b (Qwen2.5-0.5B's)" enum:"tiny,120m,0.5b"`
	Out      string `help:"file to write; empty: into the model directory" short:"o" type:"path"`
	Seed     uint64 `help:"seed of the weights" default:"1"`
	ModelDir string `help:"directory of models; empty: the user's cache" type:"path"`
	JSON     bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (SynthCmd) Help() string {
	return "Examples:\n  cadence model synth tiny\n  cadence model synth 0.5b --out qwen-shaped.gguf --seed 7"
}

// Run implements the command.
func (c *SynthCmd) Run(ctx context.Context, g *Globals) error {
	report, finish := progress(g.Err, "making "+c.Preset)
	defer finish()
	path := c.Out
	if path == "" {
		var err error
		if path, err = modelfile.Find(ctx, c.ModelDir, fmt.Sprintf("synth:%s:%d", c.Preset, c.Seed), report); err != nil {
			return err
		}
	} else {
		spec, err := gguf.Preset(c.Preset)
		if err != nil {
			return err
		}
		if _, err := gguf.SynthFile(ctx, path, spec, c.Seed, report); err != nil {
			return err
		}
	}
	finish()
	f, err := gguf.InspectFile(path)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(g.Out, map[string]any{"path": path, "parameters": f.Parameters, "size_bytes": f.SizeBytes})
	}
	_, err = fmt.Fprintf(g.Out, "%s: %.1f M parameters, %.1f MB\n", path, float64(f.Parameters)/1e6, float64(f.SizeBytes)/1e6)
	return err
}

// PullCmd downloads a model.
type PullCmd struct {
	Source        string `arg:"" help:"name of a known model (see cadence model list) or an http(s) address"`
	SHA256        string `help:"expected SHA-256 of the file" name:"sha256"`
	AllowUnpinned bool   `help:"accept the file without an expected SHA-256; what it has is recorded"`
	ModelDir      string `help:"directory of models; empty: the user's cache" type:"path"`
	File          string `help:"name of the file there; empty: the source's"`
	JSON          bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (PullCmd) Help() string {
	return "An interrupted download goes on where it stopped.\n\nExamples:\n  cadence model pull qwen2.5-0.5b-instruct-q4_k_m --sha256 HEX\n  cadence model pull https://example.org/model.gguf --sha256 HEX"
}

// Run implements the command.
func (c *PullCmd) Run(ctx context.Context, g *Globals) error {
	report, finish := progress(g.Err, "downloading")
	defer finish()
	r := modelfile.DefaultRequest(c.Source)
	r.SHA256, r.AllowUnpinned, r.Dir, r.File, r.Progress = c.SHA256, c.AllowUnpinned, c.ModelDir, c.File, report
	res, err := modelfile.Pull(ctx, r)
	if errors.Is(err, modelfile.ErrUnpinned) {
		return fmt.Errorf("%w (--sha256 HEX, or --allow-unpinned)", err)
	}
	if err != nil {
		return err
	}
	finish()
	if c.JSON {
		return printJSON(g.Out, res)
	}
	what := "downloaded"
	if res.AlreadyPresent {
		what = "already here"
	}
	_, err = fmt.Fprintf(g.Out, "%s: %s, %.1f MB, sha256 %s\n", res.Path, what, float64(res.SizeBytes)/1e6, res.SHA256)
	return err
}

// InspectCmd shows a GGUF file.
type InspectCmd struct {
	Model    string `arg:"" help:"file, name of a model in the model directory, or synth:PRESET"`
	ModelDir string `help:"directory of models; empty: the user's cache" type:"path"`
	Tensors  bool   `help:"list the tensors too"`
	JSON     bool   `help:"print JSON, metadata and tensors included"`
}

// Help implements kong.HelpProvider.
func (InspectCmd) Help() string {
	return "Examples:\n  cadence model inspect synth:tiny\n  cadence model inspect ./qwen.gguf --json"
}

// Run implements the command.
func (c *InspectCmd) Run(ctx context.Context, g *Globals) error {
	path, err := modelfile.Find(ctx, c.ModelDir, c.Model, nil)
	if err != nil {
		return err
	}
	f, err := gguf.InspectFile(path)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(g.Out, f)
	}
	t := newTable(g.Out)
	t.AppendRows([]table.Row{
		{"file", path},
		{"name", f.Name},
		{"architecture", f.Architecture},
		{"parameters", fmt.Sprintf("%.1f M", float64(f.Parameters)/1e6)},
		{"size", fmt.Sprintf("%.1f MB", float64(f.SizeBytes)/1e6)},
		{"quantisation", f.Quantisation},
		{"context", fmt.Sprintf("%d tokens", f.ContextTokens)},
		{"shape", fmt.Sprintf("%d layers, width %d, %d heads (%d KV), feed-forward %d", f.Layers, f.Embedding, f.Heads, f.KVHeads, f.FeedForward)},
		{"KV cache", fmt.Sprintf("%d bytes per token (f16)", f.KVBytes)},
		{"tokenizer", fmt.Sprintf("%s (%s), %d tokens, EOS %s", f.Tokenizer.Model, f.Tokenizer.PreTokenizer, f.Tokenizer.Vocab, f.Tokenizer.EOSText)},
		{"chat template", fmt.Sprintf("%d bytes", len(f.ChatTemplate))},
	})
	t.Render()
	if !c.Tensors {
		return nil
	}
	tt := newTable(g.Out)
	tt.AppendHeader(table.Row{"tensor", "type", "shape", "bytes"})
	for _, x := range f.Tensors {
		tt.AppendRow(table.Row{x.Name, x.Type, strings.Trim(fmt.Sprint(x.Shape), "[]"), x.Size})
	}
	tt.Render()
	return nil
}

// ListCmd lists models.
type ListCmd struct {
	ModelDir string `help:"directory of models; empty: the user's cache" type:"path"`
	JSON     bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (ListCmd) Help() string {
	return "Examples:\n  cadence model list\n  cadence model list --model-dir /srv/models --json"
}

// Run implements the command.
func (c *ListCmd) Run(_ context.Context, g *Globals) error {
	here, err := modelfile.List(c.ModelDir)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(g.Out, map[string]any{"here": here, "known": modelfile.KnownModels()})
	}
	t := newTable(g.Out)
	t.AppendHeader(table.Row{"model", "size", "where"})
	for _, e := range here {
		t.AppendRow(table.Row{e.Name, fmt.Sprintf("%.1f MB", float64(e.SizeBytes)/1e6), e.Path})
	}
	for _, p := range gguf.Presets() {
		t.AppendRow(table.Row{"synth:" + p, "", "made on first use"})
	}
	for _, k := range modelfile.KnownModels() {
		t.AppendRow(table.Row{k.Name, "", "cadence model pull " + k.Name})
	}
	t.Render()
	return nil
}

func newTable(w io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	return t
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
