package analytics

import (
	"context"
	"fmt"
	"strconv"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/cadence-slo/cadence/analytics/sql"
)

// seqRange is a closed range of sequences; the zero value is none.
type seqRange struct{ first, last uint64 }

// rangeState is what projector_positions says of a range.
type rangeState string

const (
	started rangeState = "started"
	landed  rangeState = "landed"
)

// position is where the projector is in a stream.
type position struct{ started, landed seqRange }

// repeat returns the range that was started and not landed, or none.
func (p position) repeat() seqRange {
	if p.started.last > p.landed.last {
		return p.started
	}
	return seqRange{}
}

func readPosition(ctx context.Context, conn ch.Conn, streamID string) (position, error) {
	var p position
	ctx = ch.Context(ctx, ch.WithParameters(ch.Parameters{"stream_id": streamID}))
	rows, err := conn.Query(ctx, sql.Statement("position_read"))
	if err != nil {
		return p, fmt.Errorf("analytics: reading the position: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var state string
		var r seqRange
		if err := rows.Scan(&state, &r.first, &r.last); err != nil {
			return p, fmt.Errorf("analytics: reading the position: %w", err)
		}
		switch rangeState(state) {
		case started:
			p.started = r
		case landed:
			p.landed = r
		}
	}
	if err := rows.Err(); err != nil {
		return p, fmt.Errorf("analytics: reading the position: %w", err)
	}
	return p, nil
}

// write writes the state of a range, repeating until it is stored.
func (s *session) write(ctx context.Context, state rangeState, r seqRange) error {
	params := ch.WithParameters(ch.Parameters{
		"stream_id": s.streamID, "state": string(state), "instance": s.instance,
		"first_seq": strconv.FormatUint(r.first, 10), "last_seq": strconv.FormatUint(r.last, 10),
	})
	return s.retry(ctx, "position", func(ctx context.Context) error {
		return s.conn.Exec(ch.Context(ctx, params), sql.Statement("position_write"))
	})
}

// retry repeats op until it succeeds, ctx ends, or the server refuses the data: then it
// returns the server's exception. Each try has InsertTimeout.
func (s *session) retry(ctx context.Context, what string, op func(context.Context) error) error {
	for wait := backoffMin; ; wait = min(2*wait, backoffMax) {
		once, cancel := context.WithTimeout(ctx, s.cfg.InsertTimeout)
		err := op(once)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case dataError(err):
			return err
		}
		s.metrics.retried.Inc()
		s.log.Warn("ClickHouse does not take it, trying again", "what", what, "error", err, "wait", wait.Round(time.Millisecond))
		if err := s.look(ctx); err != nil { // deposed meanwhile? and how far behind
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}
