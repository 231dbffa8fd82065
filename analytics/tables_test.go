package analytics

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/analytics/sql"
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
			} else if ok && !reflect.DeepEqual(have, want) {
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

// A view of what decided on requests, and of what models are learned from: a row only for those that were admitted with features and
// have been delivered, the raw facts in it, and nothing twice for events that came twice.
func TestTracesView(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	publish := func(e *schema.Event) {
		t.Helper()
		if e.Time == 0 {
			e.Time = time.Now().UnixNano()
		}
		e.Source = "test"
		if _, err := c.PublishEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for worker, fingerprint := range map[schema.WorkerID]string{"w1": "fp-1", "w2": "fp-2"} {
		publish(&schema.Event{Type: schema.WorkerUp, Worker: worker, Pool: "p", Fingerprint: fingerprint})
	}
	base := func(typ schema.Type, id schema.RequestID) *schema.Event {
		return &schema.Event{Type: typ, Request: id, Pool: "p", Model: "m", Tenant: "t", Ingress: "i", Kind: schema.KindChat, RequestSeq: 1}
	}
	admitted := func(features ...float32) schema.RequestID {
		id := newID(t)
		e := base(schema.Admitted, id)
		e.Class, e.PromptTokens, e.MaxTokens, e.Features, e.Physics, e.Propensity = schema.Guaranteed, 50, 64, features, 2*time.Second, 0.5
		e.Decision, e.Predicted, e.Bound, e.BoundLevel = "price", 2100*time.Millisecond, 3*time.Second, 0.9
		publish(e)
		return id
	}
	dispatched := func(id schema.RequestID, attempt uint32, worker schema.WorkerID) {
		e := base(schema.Dispatched, id)
		e.Attempt, e.Worker = attempt, worker
		publish(e)
	}
	delivered := func(id schema.RequestID, outcome schema.Outcome, e2e time.Duration) {
		e := base(schema.Delivered, id)
		e.Reason, e.E2E, e.OutputTokens = string(outcome), e2e, 17
		publish(e)
	}
	whole := admitted(1.5, -2)
	dispatched(whole, 1, "w1")
	dispatched(whole, 2, "w2")
	delivered(whole, schema.OutcomeComplete, 3500*time.Millisecond)
	left := admitted(3, 4)
	dispatched(left, 1, "w1")
	delivered(left, schema.OutcomeDisconnected, time.Second)
	queued := admitted(5, 6)
	delivered(queued, schema.OutcomeError, 4*time.Second)
	admitted(7, 8) // not ended
	blind := admitted()
	delivered(blind, schema.OutcomeComplete, time.Second)
	caughtUp(t, p)

	type row struct {
		features                        []float32
		physics, e2e                    int64
		propensity                      float32
		prompt, output                  int32
		censored                        bool
		worker, fingerprint, class, key string
		minutes                         int64
	}
	for _, twice := range []bool{false, true} {
		if twice {
			exec(t, conn, "INSERT INTO events SELECT * FROM events SETTINGS insert_deduplicate = 0")
		}
		var n uint64
		if scan(t, conn, "SELECT count() FROM traces", &n); n != 3 {
			t.Fatalf("%d traces, want 3", n)
		}
		for id, want := range map[schema.RequestID]row{
			whole:  {[]float32{1.5, -2}, 2e9, 35e8, 0.5, 50, 17, false, "w2", "fp-2", "guaranteed", "t/chat", 0},
			left:   {[]float32{3, 4}, 2e9, 1e9, 0.5, 50, 17, true, "w1", "fp-1", "guaranteed", "t/chat", 0},
			queued: {[]float32{5, 6}, 2e9, 4e9, 0.5, 50, 17, true, "", "", "guaranteed", "t/chat", 0},
		} {
			var got row
			scan(t, conn, "SELECT features, physics_ns, e2e_ns, propensity, prompt_tokens, output_tokens, censored, worker, worker_fingerprint, class, "+
				"concat(tenant, '/', kind), run - intDiv(toUnixTimestamp(arrived), 60) + round - intDiv(run, 10) FROM traces WHERE request_id = '"+string(id)+"'",
				&got.features, &got.physics, &got.e2e, &got.propensity, &got.prompt, &got.output, &got.censored, &got.worker, &got.fingerprint, &got.class,
				&got.key, &got.minutes)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("twice %v:\ngot  %+v\nwant %+v", twice, got, want)
			}
		}
		for id, want := range map[schema.RequestID]string{whole: "price 2100 3000 false", left: "price 2100 3000 unknown", queued: "price 2100 3000 false"} {
			var got string
			scan(t, conn, "SELECT concat(decision, ' ', toString(intDiv(predicted_ns, 1000000)), ' ', toString(intDiv(bound_ns, 1000000)), ' ', "+
				"ifNull(toString(met), 'unknown')) FROM requests WHERE request_id = '"+string(id)+"'", &got)
			if got != want {
				t.Errorf("requests: %s, want %s", got, want)
			}
		}
	}
}

// What an earlier binary inserts, without the columns of decisions, stays possible, and so is migrating with its rows there.
func TestOldWriterAndNewColumns(t *testing.T) {
	t.Parallel()
	conn := open(t)
	known, err := sql.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrate(t.Context(), conn, quiet, known[:4]); err != nil {
		t.Fatal(err)
	}
	old := "INSERT INTO events (type, ts, stream_id, seq, stored, source, request_id) VALUES ('received', now64(9), 's', 1, now64(9), 'x', generateUUIDv7())"
	exec(t, conn, old)
	if _, err := Migrate(t.Context(), conn, quiet); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, strings.Replace(old, "'s', 1", "'s', 2", 1))
	var rows, empty uint64
	scan(t, conn, "SELECT count(), countIf(decision = '' AND empty(features) AND bound_ns = 0) FROM events", &rows, &empty)
	if rows != 2 || empty != 2 {
		t.Errorf("%d rows, %d without a decision, want 2 and 2", rows, empty)
	}
}
