package services

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/schema"
)

// errEventFile is returned for a line that holds no event.
var errEventFile = errors.New("not a line of events")

// eventFile is a path of events, one in each line: what bench/sim writes ({"seq":…,"event":{…}}), a row of the table events
// with its payload, or the event itself. The brackets and commas of an array that has a line for each element do not disturb.
type eventFile string

// RequestEvents implements eventSource.
func (f eventFile) RequestEvents(ctx context.Context, id schema.RequestID) ([]schema.Stored, error) {
	var events []schema.Stored
	// Ids are written as they are in every form, so that most lines need not be decoded.
	err := f.each(ctx, []byte(id), func(s *schema.Stored) {
		if s.Request == id {
			events = append(events, *s)
		}
	})
	slices.SortStableFunc(events, func(a, b schema.Stored) int { // a table's rows may have come in any order
		switch {
		case a.Seq < b.Seq:
			return -1
		case a.Seq > b.Seq:
			return 1
		}
		return 0
	})
	return events, err
}

// ClientRequests implements eventSource.
func (f eventFile) ClientRequests(ctx context.Context, client string) ([]analytics.ClientRequest, error) {
	var found []analytics.ClientRequest
	err := f.each(ctx, nil, func(s *schema.Stored) {
		known := slices.ContainsFunc(found, func(r analytics.ClientRequest) bool { return r.Request == s.Request })
		if s.ClientRequest == client && s.Request != "" && !known {
			found = append(found, analytics.ClientRequest{Request: s.Request, Arrived: time.Unix(0, s.Time).UTC(), Tenant: s.Tenant})
		}
	})
	slices.SortStableFunc(found, func(a, b analytics.ClientRequest) int { return strings.Compare(string(b.Request), string(a.Request)) })
	return found, err
}

// each calls f for each event in a line that contains part; its argument is used again.
func (f eventFile) each(ctx context.Context, part []byte, do func(*schema.Stored)) error {
	file, err := os.Open(string(f))
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<18)
	var stored schema.Stored
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		end := err != nil
		line = bytes.TrimRight(bytes.TrimLeft(line, "[ \t\r\n"), ",] \t\r\n")
		if len(line) > 0 && bytes.Contains(line, part) {
			if err := decodeLine(line, &stored); err != nil {
				return fmt.Errorf("%s:%d: %w: %w", string(f), n, errEventFile, err)
			}
			do(&stored)
		}
		if err := ctx.Err(); end || err != nil {
			return err
		}
	}
}

// decodeLine reads an event in any of the forms.
func decodeLine(line []byte, s *schema.Stored) error {
	var l struct {
		Seq     uint64          `json:"seq"`
		Event   json.RawMessage `json:"event"`
		Payload string          `json:"payload"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return err
	}
	body := line
	switch {
	case len(l.Event) > 0:
		body = l.Event
	case l.Payload != "":
		body = []byte(l.Payload)
	}
	*s = schema.Stored{Seq: l.Seq}
	return schema.Decode(body, &s.Event)
}
