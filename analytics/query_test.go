package analytics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/analytics/sql"
)

var testNow = time.Date(2026, 4, 5, 1, 45, 0, 123456789, time.UTC)

// render runs a query and renders its result.
func render(t *testing.T, q *Querier, format Format, text string, params map[string]string) string {
	t.Helper()
	rows, err := q.Query(t.Context(), text, params, testNow)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var b bytes.Buffer
	if _, err := Render(&b, rows, format); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return b.String()
}

const everyType = `SELECT
	18446744073709551615 AS u64, toInt64(-9223372036854775808) AS i64, toUInt256('115792089237316195423570985008687907853269984665640564039457584007913129639935') AS u256,
	toDecimal64('1.50', 4) AS dec, 0.1 AS f64, toFloat32(0.1) AS f32, nan AS nan, inf AS inf, true AS bool, NULL AS null,
	'a"b,c' || char(10) || 'd/é' AS str, toFixedString('ab', 4) AS fixed, toLowCardinality('low') AS low,
	toDate('2026-04-05') AS date, toDateTime64('2026-04-05 01:45:00.123456789', 9, 'UTC') AS dt64, toDateTime('2026-04-05 01:45:00', 'Australia/Lord_Howe') AS dt,
	toUUID('0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01') AS uuid, [1, 2] AS arr, map('k', [toUInt64(1)]) AS map, (1, 'x') AS tup,
	CAST((1, 2), 'Tuple(a UInt8, b UInt8)') AS named, CAST('b', 'Enum8(\'a\' = 1, \'b\' = 2)') AS enum, toIPv4('1.2.3.4') AS ip`

func TestRenderJSON(t *testing.T) {
	q := NewQuerier(open(t))
	text := render(t, q, FormatJSON, everyType, nil)
	want := `[
{"u64":18446744073709551615,"i64":-9223372036854775808,"u256":115792089237316195423570985008687907853269984665640564039457584007913129639935,` +
		`"dec":1.5,"f64":0.1,"f32":0.1,"nan":null,"inf":null,"bool":true,"null":null,` +
		`"str":"a\"b,c\nd/é","fixed":"ab\u0000\u0000","low":"low",` +
		`"date":"2026-04-05","dt64":"2026-04-05T01:45:00.123456789Z","dt":"2026-04-04T14:45:00Z",` +
		`"uuid":"0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01","arr":[1,2],"map":{"k":[1]},"tup":[1,"x"],` +
		`"named":{"a":1,"b":2},"enum":"b","ip":"1.2.3.4"}
]
`
	if text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var parsed []map[string]any
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		t.Error(err)
	}
	if got := render(t, q, FormatJSON, "SELECT 1 AS a WHERE 0", nil); got != "[]\n" {
		t.Errorf("no rows: %q", got)
	}
	if got := render(t, q, FormatJSON, `SELECT char(255, 97) AS "a""b"`, nil); got != "[\n{\"a\\\"b\":\"�a\"}\n]\n" {
		t.Errorf("not UTF-8: %q", got)
	}
}

func TestRenderCSV(t *testing.T) {
	q := NewQuerier(open(t))
	got := render(t, q, FormatCSV, `SELECT 18446744073709551615 AS n, 'a"b,c' || char(10) || 'd' AS "s,t", NULL AS x, [1, 2] AS arr, '' AS empty UNION ALL SELECT 1, 'y', NULL, [], ' '`, nil)
	want := "n,\"s,t\",x,arr,empty\n18446744073709551615,\"a\"\"b,c\nd\",,\"[1,2]\",\n1,y,,[],\" \"\n"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestRenderTable(t *testing.T) {
	q := NewQuerier(open(t))
	got := render(t, q, FormatTable, `SELECT * FROM VALUES('n Nullable(Int32), name String, rest String', (7, '日本', 'x'), (NULL, 'a' || char(10) || 'b', repeat('y', 70)), (1234, '', ''))`, nil)
	want := "   n  name  rest\n" +
		"   7  日本  x\n" +
		"NULL  a b   " + strings.Repeat("y", 63) + "…\n" +
		"1234        \n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// More than a block: the header stays on top, and columns do not shrink.
	lines := strings.Split(render(t, q, FormatTable, "SELECT if(number = 0, 'wide cell', 'x') AS a, number AS n FROM numbers(2500) ORDER BY n", nil), "\n")
	if len(lines) != 2502 || lines[0] != "a            n" || lines[2500] != "x          2499" {
		t.Errorf("%d lines, %q, %q", len(lines), lines[0], lines[2500])
	}
	if got := render(t, q, FormatTable, "SELECT 1 AS a WHERE 0", nil); got != "a\n" {
		t.Errorf("no rows: %q", got)
	}
	rows, err := q.Query(t.Context(), "SELECT 1", nil, testNow)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if _, err := Render(&bytes.Buffer{}, rows, "yaml"); !errors.Is(err, ErrFormat) {
		t.Errorf("err = %v", err)
	}
}

func TestQueryBindsParameters(t *testing.T) {
	q := NewQuerier(open(t))
	hostile := "'; DROP TABLE x; -- \\ \t\n\"{a:B}"
	got := render(t, q, FormatJSON, "SELECT {s:String} AS s, {n:UInt64} AS n, {l:Array(String)} AS l, {id:Identifier}.number AS i FROM numbers(1) AS t", map[string]string{
		"s": hostile, "n": "18446744073709551615", "l": "['a','b']", "id": "t",
	})
	var rows []struct {
		S string
		N json.Number
		L []string
		I int
	}
	if err := json.Unmarshal([]byte(got), &rows); err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.S != hostile || r.N != "18446744073709551615" || len(r.L) != 2 || r.I != 0 {
		t.Errorf("%+v", r)
	}
	for value, want := range map[string]string{
		"now":                              "2026-04-05T01:45:00.123Z",
		"-90m":                             "2026-04-05T00:15:00.123Z",
		"-7d":                              "2026-03-29T01:45:00.123Z",
		"2026-04-05T12:15:00.5+10:30":      "2026-04-05T01:45:00.500Z",
		"2026-04-05 01:45:00":              "2026-04-05T01:45:00.000Z",
		"2026-04-05T01:45:00.123456789Z":   "2026-04-05T01:45:00.123Z",
		"2000-01-01T00:00:00.999999+00:00": "2000-01-01T00:00:00.999Z",
	} {
		if got := render(t, q, FormatCSV, "SELECT {t:DateTime64(3)}", map[string]string{"t": value}); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
	if got := render(t, q, FormatCSV, "SELECT {t:DateTime} AS t", map[string]string{"t": "now"}); got != "t\n2026-04-05T01:45:00Z\n" {
		t.Errorf("DateTime: %q", got)
	}
	for text, params := range map[string]map[string]string{
		"no value given for {a:UInt8}": {},
		"b: the query does not use it": {"a": "1", "b": "2"},
	} {
		if _, err := q.Query(t.Context(), "SELECT {a:UInt8}", params, testNow); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := q.Query(t.Context(), "SELECT {a:UInt8}, {a:String}", map[string]string{"a": "1"}, testNow); !errors.Is(err, ErrParam) {
		t.Errorf("two types: %v", err)
	}
	if _, err := q.Query(t.Context(), "SELECT {a:UInt8}", map[string]string{"a": "300x"}, testNow); !errors.Is(err, ErrQuery) {
		t.Errorf("bad value: %v", err)
	}
}

// The server decides what reads: the querier parses nothing. The owner's connection has
// every right.
func TestQueryRefusesWhatWrites(t *testing.T) {
	conn := open(t)
	exec(t, conn, "CREATE TABLE t (v UInt8) ENGINE = MergeTree ORDER BY v")
	exec(t, conn, "INSERT INTO t VALUES (1)")
	q := NewQuerier(conn)
	for _, text := range []string{
		"INSERT INTO t VALUES (2)", "INSERT INTO t SELECT 2", "DROP TABLE t", "TRUNCATE TABLE t", "ALTER TABLE t ADD COLUMN w UInt8",
		"CREATE TABLE u (v UInt8) ENGINE = Memory", "CREATE TEMPORARY TABLE u (v UInt8)", "OPTIMIZE TABLE t", "DELETE FROM t WHERE 1",
		"SELECT 1 SETTINGS readonly = 0", "SET readonly = 0", "SELECT * FROM file('/etc/hostname', LineAsString)",
		"SELECT * FROM url('http://127.0.0.1:1/', LineAsString)", "SYSTEM SHUTDOWN", "GRANT ALL ON *.* TO reader",
		"WITH 1 AS x INSERT INTO t SELECT x", "/* SELECT */ DROP TABLE t", "(INSERT INTO t VALUES (3))", "SELECT 1; DROP TABLE t",
		"EXPLAIN AST DROP TABLE t; DROP TABLE t",
	} {
		rows, err := q.Query(t.Context(), text, nil, testNow)
		if err == nil {
			rows.Close()
			t.Errorf("%s: allowed", text)
		} else if !errors.Is(err, ErrReadOnly) && !errors.Is(err, ErrQuery) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var sum, tables uint64
	scan(t, conn, "SELECT sum(v) FROM t", &sum)
	scan(t, conn, "SELECT count() FROM system.tables WHERE database = currentDatabase()", &tables)
	if sum != 1 || tables != 1 {
		t.Errorf("sum %d, %d tables", sum, tables)
	}
	for _, text := range []string{"WITH 1 AS x SELECT x", "SHOW TABLES", "DESCRIBE TABLE t", "EXPLAIN SELECT * FROM t", "EXISTS t", "SHOW CREATE TABLE t", "(SELECT 1)", "SELECT 1 -- ;"} {
		if got := render(t, q, FormatCSV, text, nil); got == "" {
			t.Errorf("%s: no output", text)
		}
	}
	if _, err := q.Query(t.Context(), "SELECT 1 FORMAT CSV", nil, testNow); err == nil || !strings.Contains(err.Error(), "FORMAT clause") {
		t.Errorf("FORMAT: %v", err)
	}
	if _, err := q.Query(t.Context(), "SELEC 1", nil, testNow); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), "Syntax error") {
		t.Errorf("syntax: %v", err)
	}
}

// A reader's user may not change readonly where its profile has set it.
func TestQueryAsReader(t *testing.T) {
	conn := open(t)
	exec(t, conn, "CREATE TABLE t (v UInt8) ENGINE = MergeTree ORDER BY v")
	reader, err := clickhouse.Open(t.Context(), withDatabase(t, shared.ReaderDSN()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	q := NewQuerier(reader)
	if got := render(t, q, FormatCSV, "SELECT count() AS n FROM t", nil); got != "n\n0\n" {
		t.Errorf("%q", got)
	}
	if err := reader.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err == nil {
		t.Error("a reader writes without the querier")
	}
}

// A failure after the first rows must not look like the end of the result.
func TestQueryFailsInTheMiddle(t *testing.T) {
	q := NewQuerier(open(t))
	rows, err := q.Query(t.Context(), "SELECT throwIf(number = 3000000, 'too far') FROM numbers(4000000)", nil, testNow)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	if err := rows.Err(); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), "too far") {
		t.Errorf("after %d rows: %v", n, err)
	}
}

func TestCancelStopsTheQueryOnTheServer(t *testing.T) {
	conn := open(t)
	q := NewQuerier(conn)
	running := func() uint64 {
		var n uint64
		scan(t, conn, "SELECT count() FROM system.processes WHERE query LIKE '%numbers(1000000000000)%' AND query NOT LIKE '%processes%'", &n)
		return n
	}
	for name, stop := range map[string]func(context.CancelFunc, *Rows){
		"context": func(cancel context.CancelFunc, _ *Rows) { cancel() },
		"close":   func(_ context.CancelFunc, rows *Rows) { rows.Close() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		rows, err := q.Query(ctx, "SELECT number, repeat('x', 1000) FROM numbers(1000000000000)", nil, testNow)
		if err != nil {
			t.Fatal(err)
		}
		if !rows.Next() || running() != 1 {
			t.Fatalf("%s: %d running, %v", name, running(), rows.Err())
		}
		stop(cancel, rows)
		eventually(t, "end of the query on the server: "+name, func() bool { return running() == 0 })
		rows.Close()
	}
	// Also while the server has not sent anything yet.
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		rows, err := q.Query(ctx, "SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(sipHash64(number))", nil, testNow)
		if err == nil {
			rows.Close()
		}
		failed <- err
	}()
	eventually(t, "query on the server", func() bool { return running() == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	eventually(t, "end of the silent query", func() bool { return running() == 0 })
}

func TestNamedQueries(t *testing.T) {
	migrated(t)
	reader, err := clickhouse.Open(t.Context(), withDatabase(t, shared.ReaderDSN()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	q := NewQuerier(reader)
	queries, err := sql.Queries()
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range queries {
		params := map[string]string{}
		for _, p := range query.Params {
			if p.Required {
				params[p.Name] = "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01"
			}
		}
		rows, err := q.Named(t.Context(), query.Name, params, testNow)
		if err != nil {
			t.Errorf("%s: %v", query.Name, err)
			continue
		}
		if _, err := Render(&bytes.Buffer{}, rows, FormatTable); err != nil || len(rows.Columns()) == 0 {
			t.Errorf("%s: %v", query.Name, err)
		}
		rows.Close()
	}
	if _, err := q.Named(t.Context(), "nothing", nil, testNow); !errors.Is(err, sql.ErrUnknownQuery) {
		t.Errorf("unknown query: %v", err)
	}
	if _, err := q.Named(t.Context(), "recent_requests", map[string]string{"x": "1"}, testNow); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "since, limit") {
		t.Errorf("unknown parameter: %v", err)
	}
	if _, err := q.Named(t.Context(), "request_events", nil, testNow); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "needs it") {
		t.Errorf("missing parameter: %v", err)
	}
}

// decodeNumber decodes JSON with numbers kept as they are written.
func decodeNumber(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}
