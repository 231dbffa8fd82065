package analytics

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/cadence-slo/cadence/analytics/sql"
)

var (
	// ErrQuery is wrapped when the server refuses or fails a query; the message is the
	// server's.
	ErrQuery = errors.New("analytics: query")
	// ErrReadOnly is returned for a statement that would change something.
	ErrReadOnly = errors.New("analytics: only statements that read are allowed (SELECT, WITH, SHOW, DESCRIBE, EXPLAIN)")
	// ErrParam is wrapped by errors about a query's parameters; it names the parameter.
	ErrParam = errors.New("analytics: query parameter")
)

// codeReadOnly is the server's code for what the readonly setting forbids.
const codeReadOnly = 164

// rowFormat carries names, types and one JSON array a row: the server renders the
// values, so that every type of its own comes out as its own clients show it.
const rowFormat = "JSONCompactEachRowWithNamesAndTypes"

// Querier runs statements that read. Whether one does is for the server to say: each
// runs with readonly = 1, which also refuses to change any setting, to read files or
// URLs, and to create temporary tables. What it does not refuse is to end other queries
// of the same user: the embedded engine gives readers a user of their own, and so should
// an operator. It is safe for concurrent use.
type Querier struct {
	conn ch.Conn

	mu       sync.Mutex
	settings ch.Settings // nil until the server was asked
}

// NewQuerier returns a querier on conn, which stays the caller's. It must have been
// opened with an http or https DSN, as the server's own formats need.
func NewQuerier(conn ch.Conn) *Querier { return &Querier{conn: conn} }

// Column is a column of a result.
type Column struct {
	Name string
	// Type is ClickHouse's, as in "DateTime64(9, 'UTC')".
	Type string
}

// Rows is a result being read. Close it.
type Rows struct {
	columns []Column
	reader  *bufio.Reader
	stream  io.Closer
	cancel  context.CancelFunc
	values  []json.RawMessage
	err     error
}

// Query runs text with params bound to its {name:Type} placeholders. A parameter of a
// date and time type may be given as RFC 3339, as "now", or relative to now as in "-90m"
// or "-7d"; any other as ClickHouse reads it. When ctx ends, the server stops the query.
//
// Errors wrap ErrParam, ErrReadOnly, ErrQuery, or are the connection's.
func (q *Querier) Query(ctx context.Context, text string, params map[string]string, now time.Time) (*Rows, error) {
	bound, err := bind(sql.Placeholders(text), params, now)
	if err != nil {
		return nil, err
	}
	settings, err := q.readOnlySettings(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	options := []ch.QueryOption{ch.WithSettings(settings)}
	if len(bound) > 0 {
		options = append(options, ch.WithParameters(bound))
	}
	stream, err := q.conn.QueryFormat(ch.Context(ctx, options...), rowFormat, text)
	if err != nil {
		cancel()
		return nil, queryError(err)
	}
	rows := &Rows{reader: bufio.NewReaderSize(stream, 64<<10), stream: stream, cancel: cancel}
	if err := rows.readHeader(); err != nil {
		rows.Close()
		return nil, err
	}
	return rows, nil
}

// Named runs the named query with params in place of its defaults. Errors are those of
// Query, or wrap sql.ErrUnknownQuery.
func (q *Querier) Named(ctx context.Context, name string, params map[string]string, now time.Time) (*Rows, error) {
	query, err := sql.Lookup(name)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(query.Params))
	for _, p := range query.Params {
		value, given := params[p.Name]
		if !given && p.Required {
			return nil, fmt.Errorf("%w %s: %s needs it: %s", ErrParam, p.Name, query.Name, p.Description)
		}
		if !given {
			value = p.Default
		}
		all[p.Name] = value
	}
	for name := range params {
		if _, ok := all[name]; !ok {
			return nil, fmt.Errorf("%w %s: %s has none of that name; it has %s", ErrParam, name, query.Name, paramNames(query.Params))
		}
	}
	return q.Query(ctx, query.Text, all, now)
}

func paramNames(params []sql.Param) string {
	if len(params) == 0 {
		return "none at all"
	}
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// readOnlySettings returns the settings of a query. A user whose profile is read-only
// may not set readonly again, so the server is asked once.
func (q *Querier) readOnlySettings(ctx context.Context) (ch.Settings, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.settings != nil {
		return q.settings, nil
	}
	var readonly uint64
	if err := q.conn.QueryRow(ctx, sql.Statement("readonly")).Scan(&readonly); err != nil {
		return nil, queryError(err)
	}
	settings := ch.Settings{
		// An HTTP query whose client has gone runs on without this.
		"cancel_http_readonly_queries_on_client_close": 1,
		"date_time_output_format":                      "iso",
		"output_format_json_quote_64bit_integers":      0,
		"output_format_json_quote_decimals":            0,
		"output_format_json_quote_denormals":           0,
		"output_format_json_validate_utf8":             1,
		"output_format_json_escape_forward_slashes":    0,
	}
	if readonly == 0 {
		settings["readonly"] = 1
	}
	q.settings = settings
	return settings, nil
}

func queryError(err error) error {
	exception := (*ch.Exception)(nil)
	switch {
	case !errors.As(err, &exception):
		return fmt.Errorf("analytics: %w", err)
	case exception.Code == codeReadOnly:
		return fmt.Errorf("%w: %s", ErrReadOnly, exception.Message)
	}
	return fmt.Errorf("%w: %w", ErrQuery, exception)
}

func (r *Rows) readHeader() error {
	var names, types []string
	for _, header := range []*[]string{&names, &types} {
		line, err := r.line()
		if errors.Is(err, io.EOF) {
			return nil // a statement without a result
		}
		if err != nil {
			return err
		}
		if err := json.Unmarshal(line, header); err != nil {
			return fmt.Errorf("analytics: result header %.100q: %w", line, err)
		}
	}
	if len(names) != len(types) {
		return fmt.Errorf("analytics: result header has %d names and %d types", len(names), len(types))
	}
	r.columns = make([]Column, len(names))
	for i := range names {
		r.columns[i] = Column{Name: names[i], Type: types[i]}
	}
	return nil
}

// line returns the next line without its end, or io.EOF.
func (r *Rows) line() ([]byte, error) {
	line, err := r.reader.ReadBytes('\n')
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case err == io.EOF && len(line) == 0:
		return nil, io.EOF
	case err == io.EOF:
		return nil, fmt.Errorf("analytics: result cut off: %w", io.ErrUnexpectedEOF)
	}
	return nil, queryError(err)
}

// Columns returns the columns; none for a statement without a result. The caller must
// not change them.
func (r *Rows) Columns() []Column { return r.columns }

// Next reads the next row, and returns false at the end or on an error.
func (r *Rows) Next() bool {
	if r.err != nil {
		return false
	}
	line, err := r.line()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			r.err = err
		}
		return false
	}
	r.values = r.values[:0]
	if err := json.Unmarshal(line, &r.values); err != nil {
		r.err = fmt.Errorf("analytics: result row %.100q: %w", line, err)
		// A failure in mid-stream cuts the rows off with a line end; the reason follows.
		if _, why := io.CopyN(io.Discard, r.reader, 1<<20); why != nil && !errors.Is(why, io.EOF) {
			r.err = queryError(why)
		}
		return false
	}
	if len(r.values) != len(r.columns) {
		r.err = fmt.Errorf("analytics: result row has %d values for %d columns", len(r.values), len(r.columns))
		return false
	}
	return true
}

// Values returns the row's values as JSON, one a column: numbers of every width exact,
// NaN and infinities as null, times in UTC as RFC 3339. They are valid until Next.
func (r *Rows) Values() []json.RawMessage { return r.values }

// Err returns what ended Next early, or nil.
func (r *Rows) Err() error { return r.err }

// Close ends the query, on the server too if it still runs.
func (r *Rows) Close() {
	r.cancel()
	_ = r.stream.Close() // what it reports is the cancellation
}
