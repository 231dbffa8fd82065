package services

import (
	"context"
	"fmt"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
)

// DepsCmd installs the embedded ClickHouse engine.
type DepsCmd struct{}

// Help implements kong.HelpProvider.
func (DepsCmd) Help() string {
	return "It comes from the npm registry with npm, is checked against its SHA-256, and goes into the user's cache directory (566 MB).\nNothing is done if it is there. With an external server (--clickhouse-url) it is not needed.\n\nExample:\n  cadence deps"
}

// Run implements the command.
func (DepsCmd) Run(ctx context.Context, g *Globals) error {
	last := clickhouse.Stage("")
	report, finish := progress(g.Err, "ClickHouse "+clickhouse.Version)
	defer finish()
	path, err := clickhouse.Install(ctx, func(p clickhouse.Progress) {
		if p.Stage != last && p.Stage != clickhouse.StagePresent {
			g.Log.Info("embedded ClickHouse", "stage", p.Stage)
			last = p.Stage
		}
		report(p.Bytes, p.TotalBytes)
	})
	if err != nil {
		return err
	}
	finish()
	_, err = fmt.Fprintf(g.Out, "embedded ClickHouse %s: %s\n", clickhouse.Version, path)
	return err
}
