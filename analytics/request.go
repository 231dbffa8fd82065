package analytics

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// RequestEvents returns the events of a request in the order of the log, none for one that is not in the table. Of what is stored
// with a message only the sequence is there. Errors are those of Named, or of a message that cannot be decoded.
func (q *Querier) RequestEvents(ctx context.Context, id schema.RequestID) ([]schema.Stored, error) {
	var events []schema.Stored
	err := q.each(ctx, "request_events", map[string]string{"request": string(id)}, func(row map[string]json.RawMessage) error {
		var body string
		var s schema.Stored
		if err := json.Unmarshal(row["payload"], &body); err != nil {
			return fmt.Errorf("analytics: payload: %w", err)
		}
		if err := json.Unmarshal(row["seq"], &s.Seq); err != nil {
			return fmt.Errorf("analytics: seq: %w", err)
		}
		if err := schema.Decode([]byte(body), &s.Event); err != nil {
			return err
		}
		events = append(events, s)
		return nil
	})
	return events, err
}

// ClientRequest is a request as a client names it.
type ClientRequest struct {
	Request  schema.RequestID `json:"request_id"`
	Arrived  time.Time        `json:"arrived"` // UTC
	Tenant   string           `json:"tenant"`
	Outcome  string           `json:"outcome"` // as in the view requests
	Reason   string           `json:"reason"`
	Decision string           `json:"decision"`
}

// ClientRequests returns the latest requests with a client's X-Request-Id, newest first. Errors are those of Named.
func (q *Querier) ClientRequests(ctx context.Context, client string) ([]ClientRequest, error) {
	var all []ClientRequest
	err := q.each(ctx, "client_requests", map[string]string{"client": client}, func(row map[string]json.RawMessage) error {
		b, err := json.Marshal(row)
		if err != nil {
			return err
		}
		var r ClientRequest
		if err := json.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("analytics: client_requests: %w", err)
		}
		all = append(all, r)
		return nil
	})
	return all, err
}

// each calls f for each row of a named query without relative times, with its values by column.
func (q *Querier) each(ctx context.Context, name string, params map[string]string, f func(map[string]json.RawMessage) error) error {
	rows, err := q.Named(ctx, name, params, time.Time{})
	if err != nil {
		return err
	}
	defer rows.Close()
	row := map[string]json.RawMessage{}
	for rows.Next() {
		for i, c := range rows.Columns() {
			row[c.Name] = rows.Values()[i]
		}
		if err := f(row); err != nil {
			return err
		}
	}
	return rows.Err()
}
