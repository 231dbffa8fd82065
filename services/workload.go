package services

import (
	"fmt"
	"os"

	"github.com/cadence-slo/cadence/bench/printer"
	"github.com/cadence-slo/cadence/bench/workload"
	"github.com/cadence-slo/cadence/bench/workload/sample"
)

// WorkloadCmd groups the commands about what is offered in experiments.
type WorkloadCmd struct {
	List   WorkloadListCmd   `cmd:"" help:"List the workloads that come with Cadence."`
	Show   WorkloadShowCmd   `cmd:"" help:"Print the file of a workload, to copy and edit."`
	Sample WorkloadSampleCmd `cmd:"" help:"Draw requests of a workload and say what they are like."`
}

// Help implements kong.HelpProvider.
func (WorkloadCmd) Help() string {
	return `A workload is a name (see cadence workload list), a file of your own, or a trace:
  azure:FILE      CSV with TIMESTAMP, ContextTokens and GeneratedTokens
  mooncake:FILE   JSON lines with timestamp, input_length, output_length and hash_ids
  record:DIR      the requests of an earlier run
A trace takes options: FILE?tokens=0.25&from=10m&length=5m&rate=2.

Examples:
  cadence workload list
  cadence workload show seed > mine.yaml
  cadence workload sample mine.yaml --plot mine.png
  cadence workload sample "azure:AzureLLMInferenceTrace_conv.csv?tokens=0.25" --json`
}

// WorkloadListCmd lists the embedded workloads.
type WorkloadListCmd struct {
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (WorkloadListCmd) Help() string { return "Example:\n  cadence workload list" }

// Run implements the command.
func (c *WorkloadListCmd) Run(g *Globals) error {
	type entry struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	var entries []entry
	for _, name := range workload.Embedded() {
		about, err := workload.About(name)
		if err != nil {
			return err
		}
		entries = append(entries, entry{name, about})
	}
	if c.JSON {
		return printJSON(g.Out, entries)
	}
	p := &printer.Printer{W: g.Out}
	for _, e := range entries {
		p.Line("%-14s %s", e.Name, e.About)
	}
	return p.Err
}

// WorkloadShowCmd prints an embedded workload.
type WorkloadShowCmd struct {
	Name string `arg:"" help:"name of a workload (see cadence workload list)"`
}

// Help implements kong.HelpProvider.
func (WorkloadShowCmd) Help() string { return "Example:\n  cadence workload show seed > mine.yaml" }

// Run implements the command.
func (c *WorkloadShowCmd) Run(g *Globals) error {
	text, err := workload.Text(c.Name)
	if err != nil {
		return err
	}
	_, err = g.Out.Write(text)
	return err
}

// sampleVocabulary is how many token ids the prompts of a sample are drawn from. What a sample says does not depend on it.
const sampleVocabulary = 32000

// WorkloadSampleCmd says what the requests of a workload are like.
type WorkloadSampleCmd struct {
	Name string `arg:"" help:"name, file or trace (see cadence workload --help)"`
	N    int    `help:"requests to draw, at most; a trace may have fewer" name:"n" default:"1000"`
	Seed uint64 `help:"seed of the requests" default:"1"`
	Plot string `help:"PNG file to draw the distributions of lengths into" type:"path" placeholder:"FILE"`
	JSON bool   `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (WorkloadSampleCmd) Help() string {
	return `The lengths are in tokens. The ceiling of the prefix hit ratio is the part of all prompt tokens that a prefix cache without
limits would have found, with these requests one after the other.

Examples:
  cadence workload sample seed
  cadence workload sample elastic-mixed --n 10000 --plot lengths.png
  cadence workload sample "mooncake:trace.jsonl?tokens=0.1" --json`
}

// Run implements the command.
func (c *WorkloadSampleCmd) Run(g *Globals) error {
	if c.N < 1 || c.N > 1e6 {
		return fmt.Errorf("%w: --n is %d, allowed: 1 to 1000000", ErrFlags, c.N)
	}
	vocab, err := workload.NewVocabulary(sampleVocabulary, nil)
	if err != nil {
		return err
	}
	source, err := workload.OpenSource(c.Name, vocab, c.Seed)
	if err != nil {
		return err
	}
	report := sample.Take(source, c.N)
	if c.Plot != "" {
		png, err := report.PNG()
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.Plot, png, 0o644); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(g.Out, report)
	}
	p := &printer.Printer{W: g.Out}
	report.Print(p)
	return p.Err
}
