package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/schema"
)

var (
	// ErrNoRequest is returned for an id that no event has.
	ErrNoRequest = errors.New("no such request")
	// ErrManyRequests is returned for a client's id that several requests have; the message lists them.
	ErrManyRequests = errors.New("several requests have this X-Request-Id: give the id of one")
)

// ExplainCmd tells what was decided on one request and why, and what became of it.
type ExplainCmd struct {
	Request       string `arg:"" name:"request-id" help:"the request's X-Cadence-Request-Id, or the X-Request-Id that its client sent"`
	From          string `help:"read this file of events instead of ClickHouse: a JSON line each, as cadence sim writes them, or rows of the table events" type:"path" placeholder:"FILE" env:"CADENCE_EXPLAIN_FROM"`
	JSON          bool   `help:"print JSON"`
	DataDir       string `help:"directory of all state, in which an embedded engine runs" type:"path" default:"${data_dir}"`
	ClickhouseURL string `help:"ClickHouse server; empty: the embedded engine that runs on data-dir" name:"clickhouse-url" placeholder:"URL"`
}

// Help implements kong.HelpProvider.
func (ExplainCmd) Help() string {
	return `Shows what was known of a request when it arrived, what was predicted and decided and by which rule, its events, and whether bound and
objectives were kept. Every response has the id in X-Cadence-Request-Id, refusals too; its events are there about a second later.

Examples:
  cadence explain 0198c1e2-7a31-7c4e-9b1a-2f6d5e8c1a01
  cadence explain my-own-request-id --json
  cadence query "SELECT seq, payload FROM events ORDER BY stream_id, seq" --json > events.json
  cadence explain 0198c1e2-7a31-7c4e-9b1a-2f6d5e8c1a01 --from events.json`
}

// eventSource is where the events of requests are read.
type eventSource interface {
	// RequestEvents returns a request's events in the order of the log, none for one that is not there.
	RequestEvents(ctx context.Context, id schema.RequestID) ([]schema.Stored, error)
	// ClientRequests returns the latest requests with a client's id, newest first.
	ClientRequests(ctx context.Context, client string) ([]analytics.ClientRequest, error)
}

// Run implements the command.
func (c *ExplainCmd) Run(ctx context.Context, g *Globals) error {
	name := strings.TrimSpace(c.Request)
	if !requestName(name) {
		return fmt.Errorf("%w: request-id is %q: want a UUID as in X-Cadence-Request-Id, or a client's X-Request-Id (1 to %d visible ASCII characters)",
			ErrFlags, name, schema.MaxClientRequest)
	}
	source, done, err := c.source(ctx)
	if err != nil {
		return err
	}
	defer done()
	events, err := findRequest(ctx, source, name)
	if errors.Is(err, ErrNoRequest) && c.From == "" {
		err = fmt.Errorf("%w; events take about a second to get there, and are deleted after the time that cadence analytics keeps them", err)
	}
	if err != nil {
		return err
	}
	a := newAccount(events)
	if c.JSON {
		return printJSON(g.Out, a)
	}
	_, err = io.WriteString(g.Out, a.text())
	return err
}

// source opens what the flags say, and returns how to close it.
func (c *ExplainCmd) source(ctx context.Context) (eventSource, func(), error) {
	if c.From != "" {
		if _, err := os.Stat(c.From); err != nil {
			return nil, nil, err
		}
		return eventFile(c.From), func() {}, nil
	}
	dsn, err := (&QueryCmd{DataDir: c.DataDir, ClickhouseURL: c.ClickhouseURL}).dsn()
	if err != nil {
		return nil, nil, err
	}
	conn, err := clickhouse.Open(ctx, dsn)
	if err != nil {
		return nil, nil, err
	}
	return analytics.NewQuerier(conn), func() { _ = conn.Close() }, nil
}

// requestName reports whether an event can have this as its request's id, or its client's.
func requestName(s string) bool {
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return 0 < len(s) && len(s) <= schema.MaxClientRequest
}

// findRequest returns the events of the request that is named. Errors wrap ErrNoRequest, ErrManyRequests, or are the source's.
func findRequest(ctx context.Context, source eventSource, name string) ([]schema.Stored, error) {
	if id := schema.RequestID(strings.ToLower(name)); id.Valid() {
		if events, err := source.RequestEvents(ctx, id); err != nil || len(events) > 0 {
			return events, err
		}
	}
	found, err := source.ClientRequests(ctx, name) // clients' ids are often UUIDs, too
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %s", ErrNoRequest, name)
	case len(found) > 1:
		var list strings.Builder
		for _, r := range found {
			fmt.Fprintf(&list, "\n  %s  %s  tenant %s  %s", r.Request, r.Arrived.UTC().Format(time.DateTime), r.Tenant,
				strings.Join(strings.Fields(r.Outcome+" "+r.Reason), " "))
		}
		return nil, fmt.Errorf("%w%s", ErrManyRequests, list.String())
	}
	return source.RequestEvents(ctx, found[0].Request)
}
