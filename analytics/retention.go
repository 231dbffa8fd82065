package analytics

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/cadence-slo/cadence/analytics/sql"
)

// setRetention gives the tables the time to live of the configuration. Rows that are
// over it go with later merges.
func (p *Projector) setRetention(ctx context.Context) error {
	for _, t := range []struct {
		table string
		days  int
	}{{"events", p.cfg.EventDays}, {"engine_steps", p.cfg.StepDays}} {
		if err := setRetention(ctx, p.conn, t.table, t.days, p.log); err != nil {
			return fmt.Errorf("analytics: retention of %s: %w", t.table, err)
		}
	}
	return nil
}

// setRetention changes the table only if it differs: an unchanged ALTER rewrites metadata.
func setRetention(ctx context.Context, conn ch.Conn, table string, days int, log *slog.Logger) error {
	var have uint32
	read := ch.Context(ctx, ch.WithParameters(ch.Parameters{"table": table}))
	if err := conn.QueryRow(read, sql.Statement("retention_days")).Scan(&have); err != nil {
		return err
	}
	if int(have) == days {
		return nil
	}
	// Without this setting the server would rewrite every old part at once.
	lazy := ch.WithSettings(ch.Settings{"materialize_ttl_after_modify": 0})
	statement, options := table+"_retention", []ch.QueryOption{lazy, ch.WithParameters(ch.Parameters{"days": strconv.Itoa(days)})}
	if days == 0 {
		statement, options = table+"_forever", []ch.QueryOption{lazy}
	}
	if err := conn.Exec(ch.Context(ctx, options...), sql.Statement(statement)); err != nil {
		return err
	}
	log.Info("retention changed", "table", table, "days", days, "days_before", have)
	return nil
}
