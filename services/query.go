package services

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/analytics/sql"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// QueryCmd asks ClickHouse.
type QueryCmd struct {
	Query         string            `arg:"" optional:"" help:"SQL, or the name of a query"`
	Param         map[string]string `help:"value of a parameter of the query ({name:Type} in its SQL)" short:"p" placeholder:"NAME=VALUE"`
	List          bool              `help:"list the named queries"`
	JSON          bool              `help:"print one JSON array of objects" xor:"form"`
	CSV           bool              `help:"print CSV" xor:"form"`
	DataDir       string            `help:"directory of all state, in which an embedded engine runs" type:"path" default:"${data_dir}"`
	ClickhouseURL string            `help:"ClickHouse server; empty: the embedded engine that runs on data-dir" name:"clickhouse-url" placeholder:"URL"`
}

// Help implements kong.HelpProvider.
func (QueryCmd) Help() string {
	return `Only statements that read are run.

Examples:
  cadence query "SELECT type, count() FROM events GROUP BY type"
  cadence query --list
  cadence query latency_breakdown -p since=-1h --json
  cadence query request_events -p request=0198c1e2-…`
}

// dsn is where the flags say that ClickHouse is.
func (c *QueryCmd) dsn() (string, error) {
	if c.ClickhouseURL != "" {
		return c.ClickhouseURL, nil
	}
	dsn, err := clickhouse.Discover(filepath.Join(c.DataDir, "clickhouse"))
	if err != nil {
		return "", fmt.Errorf("%w (is `cadence up` or `cadence analytics` running on --data-dir %s?)", err, c.DataDir)
	}
	return dsn, nil
}

// Run implements the command.
func (c *QueryCmd) Run(ctx context.Context, g *Globals) error {
	if c.List {
		return listQueries(g.Out, c.JSON)
	}
	if strings.TrimSpace(c.Query) == "" {
		return fmt.Errorf("%w: give SQL or the name of a query, or --list", ErrFlags)
	}
	dsn, err := c.dsn()
	if err != nil {
		return err
	}
	conn, err := clickhouse.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close()
	querier, run := analytics.NewQuerier(conn), (*analytics.Querier).Query
	if !strings.ContainsAny(c.Query, " \n\t") {
		run = (*analytics.Querier).Named
	}
	rows, err := run(querier, ctx, c.Query, c.Param, time.Now())
	if err != nil {
		return err
	}
	defer rows.Close()
	_, err = analytics.Render(g.Out, rows, c.format())
	return err
}

func (c *QueryCmd) format() analytics.Format {
	switch {
	case c.JSON:
		return analytics.FormatJSON
	case c.CSV:
		return analytics.FormatCSV
	default:
		return analytics.FormatTable
	}
}

// listQueries shows the named queries with their parameters.
func listQueries(w io.Writer, asJSON bool) error {
	queries, err := sql.Queries()
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(w, queries)
	}
	t := newTable(w)
	t.AppendHeader(table.Row{"query", "what it shows", "parameters"})
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, WidthMax: 60, WidthMaxEnforcer: text.WrapSoft}, {Number: 3, WidthMax: 50}})
	for _, q := range queries {
		var params []string
		for _, p := range q.Params {
			value := p.Default
			if p.Required {
				value = "(required)"
			}
			params = append(params, p.Name+"="+value)
		}
		t.AppendRow(table.Row{q.Name, q.Description, strings.Join(params, "\n")})
	}
	t.Render()
	return nil
}
