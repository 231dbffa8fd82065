package analytics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

// Every field of every fixture arrives in its column, and the message as it was.
func TestEveryFieldHasItsColumn(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	files, err := filepath.Glob("../schema/testdata/v1/event_*.json")
	if err != nil || len(files) < len(schema.Types) {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	var bodies []string
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, strings.TrimSpace(string(body)))
		publishRaw(t, c, "evt.fixture.0", bodies[len(bodies)-1])
	}
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	caughtUp(t, p)
	rows, err := NewQuerier(conn).Query(t.Context(), "SELECT * EXCEPT (ts), toUnixTimestamp64Nano(ts) AS time_ns FROM events ORDER BY seq", nil, testNow)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		got := map[string]any{}
		for i, column := range rows.Columns() {
			got[column.Name] = decodeNumber(t, rows.Values()[i])
		}
		if got["payload"] != bodies[n] {
			t.Errorf("%s: payload is %v", files[n], got["payload"])
		}
		for name, want := range decodeNumber(t, []byte(bodies[n])).(map[string]any) {
			switch name {
			case "v", "resume":
				continue // in the payload alone
			}
			if have, ok := got[name]; !ok && !strings.Contains(files[n], "newer") {
				t.Errorf("%s: no column %s", files[n], name)
			} else if ok && have != want {
				t.Errorf("%s: %s is %v, want %v", files[n], name, have, want)
			}
		}
	}
	if rows.Err() != nil || n != len(files) {
		t.Errorf("%d rows of %d, %v; dead letters %v", n, len(files), rows.Err(), deadLetters(t, c))
	}
}

// requestRow is what the view says of a request, as far as the test looks.
type requestRow struct {
	outcome, reason, cancelReason, delivered, worker string
	attempts                                         uint32
	preemptions                                      uint64
	queueNS                                          int64 // 0 for null
}

func TestRequestsView(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	p := newProjector(t, fast(), c, conn)
	start(t, p)

	// story stores events of one request in order and returns its id. Each line is a type,
	// then attempt, worker or reason as the type has them.
	story := func(lines ...string) schema.RequestID {
		id := newID(t)
		for i, line := range lines {
			f := strings.Fields(line)
			e := &schema.Event{Type: schema.Type(f[0]), Time: time.Now().UnixNano(), Source: "test", Request: id, Pool: "p", Model: "m", Tenant: "t", Ingress: "i", RequestSeq: 1, Ordinal: uint32(i)}
			for _, word := range f[1:] {
				switch {
				case word[0] >= '0' && word[0] <= '9':
					e.Attempt = uint32(word[0] - '0')
				case strings.HasPrefix(word, "w"):
					e.Worker = schema.WorkerID(word)
				default:
					e.Reason = word
				}
			}
			if e.Type == schema.Dispatched {
				e.QueueTime = time.Duration(e.Attempt) * time.Millisecond
			}
			if _, err := c.PublishEvent(t.Context(), e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		return id
	}
	const ms = 1_000_000
	for id, want := range map[schema.RequestID]requestRow{
		story("received", "refused capacity"): {outcome: "refused", reason: "capacity"},
		story("received", "admitted"):         {outcome: "in_flight"},
		// A worker comes back after its request went on elsewhere.
		story("received", "accepted", "dispatched 1 w1", "sealed 1", "dispatched 2 w2", "finished 1 w1 stop", "finished 2 w2 length", "delivered complete"): {
			outcome: "finished", reason: "length", delivered: "complete", worker: "w2", attempts: 2, queueNS: 2 * ms},
		story("received", "accepted", "dispatched 1 w1", "sealed 1", "dispatched 2 w2", "finished 2 w2 length", "finished 1 w1 stop"): {
			outcome: "finished", reason: "length", worker: "w2", attempts: 2, queueNS: 2 * ms},
		// The scheduler has given it up; the worker's own word comes before or after.
		story("received", "dispatched 1 w1", "finished 1 w1 stop", "failed 1 crashed"): {
			outcome: "failed", reason: "crashed", worker: "w1", attempts: 1, queueNS: 1 * ms},
		story("received", "dispatched 1 w1", "failed 1 crashed", "finished 1 w1 stop"): {
			outcome: "failed", reason: "crashed", worker: "w1", attempts: 1, queueNS: 1 * ms},
		story("received", "dispatched 1 w1", "preempted 1 w1", "preempted 1 w1", "cancel_requested disconnect", "cancelled 1 w1 disconnect", "delivered disconnected"): {
			outcome: "cancelled", reason: "disconnect", cancelReason: "disconnect", delivered: "disconnected", worker: "w1", attempts: 1, preemptions: 2, queueNS: 1 * ms},
		story("received", "accepted", "failed timeout"): {outcome: "failed", reason: "timeout"},
	} {
		caughtUp(t, p)
		for _, twice := range []bool{false, true} {
			if twice { // before the table has merged rows that came twice
				exec(t, conn, "INSERT INTO events SELECT * FROM events SETTINGS insert_deduplicate = 0")
			}
			var got requestRow
			scan(t, conn, "SELECT outcome, reason, cancel_reason, delivered, worker, attempts, preemptions, ifNull(queue_ns, 0) FROM requests WHERE request_id = '"+string(id)+"'",
				&got.outcome, &got.reason, &got.cancelReason, &got.delivered, &got.worker, &got.attempts, &got.preemptions, &got.queueNS)
			if got != want {
				t.Errorf("rows twice: %v\ngot  %+v\nwant %+v", twice, got, want)
			}
		}
		exec(t, conn, "OPTIMIZE TABLE events FINAL")
	}
	var rows uint64
	scan(t, conn, "SELECT count() FROM requests", &rows)
	if rows != 8 {
		t.Errorf("%d requests, want 8", rows)
	}
	scan(t, conn, "SELECT count() FROM requests WHERE arrived < now() - INTERVAL 1 DAY", &rows)
	if rows != 0 {
		t.Errorf("%d requests of another time", rows)
	}
}
