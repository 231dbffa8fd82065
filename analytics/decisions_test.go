package analytics

import (
	"bytes"
	"crypto/rand"
	"math"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

// decided is a table of decisions.
type decided struct {
	t *testing.T
	c *streams.Client
}

// event stores an event of a request with a client's id.
func (d *decided) event(typ schema.Type, id schema.RequestID, change func(*schema.Event)) {
	d.t.Helper()
	e := &schema.Event{Type: typ, Request: id, Time: testNow.UnixNano(), Source: "test", Pool: "p", Model: "m", Tenant: "t", Ingress: "i", RequestSeq: 1,
		ClientRequest: "again"}
	change(e)
	if _, err := d.c.PublishEvent(d.t.Context(), e); err != nil {
		d.t.Fatal(err)
	}
}

// admitted stores a request that arrives at a time with so many running and waiting for each slot, and is done after e2e; 0: it is not.
func (d *decided) admitted(at time.Time, running, waiting float32, e2e time.Duration, outcome schema.Outcome) schema.RequestID {
	id := idAt(d.t, at)
	d.event(schema.Admitted, id, func(e *schema.Event) {
		e.Decision, e.Predicted, e.Bound, e.BoundLevel, e.Meet, e.Lambda, e.Propensity = "best_effort_price", time.Second, 2*time.Second, 0.5, 0.9, 0.5, 1
		e.Features = make([]float32, feature.Count)
		e.Features[feature.Running], e.Features[feature.Waiting] = running, waiting
	})
	if e2e > 0 {
		d.event(schema.Delivered, id, func(e *schema.Event) { e.Reason, e.E2E, e.ClientRequest = string(outcome), e2e, "" })
	}
	return id
}

func (d *decided) refused(at time.Time, tenant, decision string, predicted time.Duration, meet float32) {
	d.event(schema.Refused, idAt(d.t, at), func(e *schema.Event) {
		e.Tenant, e.Reason, e.Decision, e.Predicted, e.Meet, e.Lambda, e.RetryAfter = tenant, "slo", decision, predicted, meet, 1.5, 3*time.Second
	})
}

func idAt(t *testing.T, at time.Time) schema.RequestID {
	t.Helper()
	id, err := schema.NewID(at, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return schema.RequestID(id)
}

// Queries of decisions say of known rows what these hold, also of rows that came twice.
func TestQueriesOfDecisions(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	d := &decided{t, c}
	hour := time.Date(2026, 4, 5, 1, 0, 0, 0, time.UTC)
	for i := range 20 { // load i/10; the higher, the longer they take, and the last two too long
		load := float32(i) / 10
		d.admitted(hour.Add(time.Duration(i)*time.Second), load/2, load/2, time.Duration(float64(time.Second)*math.Exp(float64(i-10)/11)), schema.OutcomeComplete)
	}
	d.admitted(hour.Add(time.Minute), 0, 0, time.Second, schema.OutcomeDisconnected) // neither kept nor missed
	d.admitted(hour.Add(time.Minute), 0, 0, 0, "")
	d.refused(hour.Add(61*time.Second), "t", "best_effort_price", 4*time.Second, 0.2)
	d.refused(hour.Add(62*time.Second), "t", "best_effort_price", 2*time.Second, 0.4)
	d.refused(hour.Add(63*time.Second), "t", "best_effort_price", 0, 0)
	d.refused(hour.Add(64*time.Second), "u", "infeasible", time.Second, 0)
	d.refused(hour.Add(-time.Hour), "u", "infeasible", time.Second, 0) // before what is asked for
	caughtUp(t, p)

	q := NewQuerier(conn)
	params := map[string]string{"since": hour.Format(time.RFC3339), "until": hour.Add(time.Hour).Format(time.RFC3339)}
	for _, twice := range []bool{false, true} {
		if twice {
			exec(t, conn, "INSERT INTO events SELECT * FROM events SETTINGS insert_deduplicate = 0")
		}
		for name, want := range map[string]string{
			// Cuts are of 22 loads, of which three are 0.
			"coverage_by_load": "day,tenant,bound_level,load_decile,load_from,load_to,bounds,kept,missed,kept_ratio\n" +
				"2026-04-05,t,0.5,1,0,0,2,1,0,1\n" +
				"2026-04-05,t,0.5,2,0.1,0.2,2,2,0,1\n" +
				"2026-04-05,t,0.5,3,0.3,0.4,2,2,0,1\n" +
				"2026-04-05,t,0.5,4,0.5,0.6,2,2,0,1\n" +
				"2026-04-05,t,0.5,5,0.7,0.9,3,3,0,1\n" +
				"2026-04-05,t,0.5,6,1,1.1,2,2,0,1\n" +
				"2026-04-05,t,0.5,7,1.2,1.3,2,2,0,1\n" +
				"2026-04-05,t,0.5,8,1.4,1.5,2,2,0,1\n" +
				"2026-04-05,t,0.5,9,1.6,1.7,2,2,0,1\n" +
				"2026-04-05,t,0.5,10,1.8,1.9,2,0,2,0\n",
			"refusals": "reason,decision,tenant,requests,predicted,predicted_mean_ms,meet_mean,retry_after_mean_seconds\n" +
				"slo,best_effort_price,t,3,2,3000,0.3,3\n" +
				"slo,infeasible,u,1,1,1000,0,3\n",
			"decision_rates": "interval_start,decision,admitted,refused,lambda_mean,meet_mean\n" +
				"2026-04-05T01:00:00Z,best_effort_price,20,0,0.5,0.9\n" +
				"2026-04-05T01:01:00Z,best_effort_price,2,3,1.1,0.6\n" +
				"2026-04-05T01:01:00Z,infeasible,0,1,1.5,0\n",
			"calibration": "hour,model,requests,log_ratio_p05,log_ratio_p50,log_ratio_p95,log_ratio_p99\n" +
				"2026-04-05T01:00:00Z,physics,20,-0.8182,0,0.8182,0.8182\n",
		} {
			rows, err := q.Named(t.Context(), name, params, testNow)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var b bytes.Buffer
			if _, err := Render(&b, rows, FormatCSV); err != nil || b.String() != want {
				t.Errorf("%s, twice %v: %v\ngot\n%s\nwant\n%s", name, twice, err, b.String(), want)
			}
			rows.Close()
		}
	}
}

// A request is found by its id with its events as they were, and by its client's id, with the retries beside it.
func TestRequestEvents(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	d := &decided{t, c}
	first := d.admitted(testNow, 0.25, 0, time.Second, schema.OutcomeComplete)
	second := d.admitted(testNow.Add(time.Second), 0.5, 0, 0, "")
	d.event(schema.Received, idAt(t, testNow), func(e *schema.Event) { e.ClientRequest = "it's \\ \"another\"" })
	caughtUp(t, p)
	exec(t, conn, "INSERT INTO events SELECT * FROM events SETTINGS insert_deduplicate = 0")
	q := NewQuerier(conn)
	events, err := q.RequestEvents(t.Context(), first)
	if err != nil || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if a, b := &events[0], &events[1]; a.Type != schema.Admitted || a.Features[feature.Running] != 0.25 || a.Bound != 2*time.Second || a.Seq >= b.Seq ||
		b.Type != schema.Delivered || b.E2E != time.Second {
		t.Errorf("%+v\n%+v", a, b)
	}
	if events, err := q.RequestEvents(t.Context(), newID(t)); err != nil || len(events) != 0 {
		t.Errorf("an unknown request: %d events, %v", len(events), err)
	}
	found, err := q.ClientRequests(t.Context(), "again")
	if err != nil || len(found) != 2 || found[0].Request != second || found[1].Request != first || found[0].Outcome != "in_flight" ||
		found[1].Decision != "best_effort_price" || !found[1].Arrived.Equal(testNow.Truncate(time.Millisecond)) {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err := q.ClientRequests(t.Context(), "it's \\ \"another\""); err != nil || len(found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err := q.ClientRequests(t.Context(), "never"); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
