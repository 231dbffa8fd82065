package services

import (
	"context"
	"errors"
	"fmt"

	"github.com/cadence-slo/cadence/bench/peer"
)

// PeerEngineCmd compares the pipeline with llama-server.
type PeerEngineCmd struct {
	peer.Options
	JSON bool `help:"print JSON"`
}

// Help implements kong.HelpProvider.
func (PeerEngineCmd) Help() string {
	return `It runs ` + "`cadence up`" + ` and llama-server on the same model with the same threads and KV cache, and sends the same requests to both in
alternating blocks (A B B A): prompts of token ids that share nothing, at several requests at a time, and prompts of which
70 % share a system prompt, in a closed and in an open loop. llama-server runs in the settings that are its best for the
workload (each is tried first). Then it compares the worker's prefill with a bare loop of llama_decode. Ratios are Cadence's
figure over llama-server's, the median over pairs of neighbouring blocks with the least and the greatest. It takes minutes and
wants a machine with nothing else to do. Stopped with Ctrl-C it prints the parts that are finished.

Examples:
  cadence bench peer-engine --model 120m --threads 2
  cadence bench peer-engine --model 0.5b --json > peer.json
  cadence bench peer-engine --quick --llama-server ./llama-server
  cadence bench peer-engine --parts prefill --blocks 20`
}

// Run implements the command.
func (c *PeerEngineCmd) Run(ctx context.Context, g *Globals) error {
	c.Options.Log, c.Options.Version, c.Options.Executable, c.Options.Progress = g.Log, g.Version, executable(), g.Err
	report, err := peer.Engine(ctx, c.Options)
	switch {
	case report.Stopped && report.Empty():
		return fmt.Errorf("stopped before any part was finished: %w", err)
	case err != nil && !report.Stopped:
		return err
	case c.JSON:
		return errors.Join(err, printJSON(g.Out, report))
	}
	return errors.Join(err, report.Write(g.Out))
}
