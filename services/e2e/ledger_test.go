package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// A thousand requests, a tenth of whose clients go away, while every service is killed (SIGKILL) once and started
// again. Then, when all is quiet: nothing is in flight, ClickHouse has exactly the events of the stream, and each
// request of the client's own ledger has the end that its client saw.
func TestLedger(t *testing.T) {
	const n, rate = 1000, 40
	rounds := fromEnv(t, "CADENCE_TEST_LEDGER_ROUNDS", 1)
	d := deploy(t, []string{"worker-a", "worker-b"}, "--backend", "mock", "--mock-step", "4ms", "--mock-step-per-seq", "50us", "--mock-prefill-rate", "50000", "--sequences", "16")
	c, log := d.client(), d.log()
	var ledger []*load.Record
	var jobs []job
	for round := range rounds {
		victims := slices.Clone(d.order)
		rand.New(rand.NewPCG(uint64(round), 1)).Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		records, asked := killUnderLoad(t, d, c, round, n, rate, victims)
		ledger, jobs = append(ledger, records...), append(jobs, asked...)
		quiet(t, log)
	}
	events := quiet(t, log)
	usage, err := log.c.Usage(t.Context(), streams.Events)
	if err != nil {
		t.Fatal(err)
	}
	if uint64(len(events)) != usage.Messages || events[0].Seq != usage.FirstSeq || events[len(events)-1].Seq != usage.LastSeq {
		t.Fatalf("read %d events, [%d, %d]; the stream has %+v", len(events), events[0].Seq, events[len(events)-1].Seq, usage)
	}
	eventually(t, time.Minute, "ClickHouse has the stream", func() error { return d.compareRows(events) })
	everyStored(t, log, events)
	settle(t, ledger, jobs, events)
	if letters, err := log.c.Usage(t.Context(), streams.DeadLetters); err != nil || letters.Messages > 0 {
		t.Errorf("%d dead letters, %v", letters.Messages, err)
	}
	d.stop()
}

// killUnderLoad sends requests on an open loop and kills the victims one after the other meanwhile, each when its
// share of the requests was sent and the one before is back.
func killUnderLoad(t *testing.T, d *deployment, c *load.Client, round, n int, rate float64, victims []string) ([]*load.Record, []job) {
	rng := rand.New(rand.NewPCG(uint64(round), 2))
	jobs := makeJobs(n, 10, 60)
	requests := make([]*load.Request, n)
	for i, j := range jobs {
		requests[i] = j.request(t, fmt.Sprintf("ledger-%d-%d", round, i))
		switch rng.IntN(20) {
		case 0:
			requests[i].DropAfterEvents = 1 + rng.IntN(8)
		case 1:
			requests[i].DropAfter = time.Duration(rng.IntN(200)) * time.Millisecond
		}
	}
	// The schedule's own goroutine tells how far it is; the killer follows.
	sent := make(chan int, n)
	var killer sync.WaitGroup
	killer.Go(func() {
		share := n / (len(victims) + 1)
		for i, name := range victims {
			for at := range sent {
				if at >= (i+1)*share {
					break
				}
			}
			begin := time.Now()
			if err := d.services[name].p.Kill(); err != nil {
				t.Error(err)
				return
			}
			if err := d.restart(name); err != nil {
				t.Error(err)
				return
			}
			t.Logf("round %d: killed %s, it was back after %v", round, name, time.Since(begin).Round(time.Millisecond))
		}
	})
	records := make([]*load.Record, n)
	sum, err := load.Run(t.Context(), load.Plan{
		Client: c, Arrivals: every(n, time.Duration(float64(time.Second)/rate)), Drain: 90 * time.Second,
		Next: func(i int) *load.Request { sent <- i; return requests[i] },
		Sink: func(r *load.Record) { records[r.Index] = r },
	})
	close(sent)
	killer.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("round %d: %v, reasons %v, p50 %v, p99 %v", round, sum.Outcomes, sum.Reasons, sum.E2E.P50, sum.E2E.P99)
	return records, jobs
}

// every is n arrivals with a fixed distance.
func every(n int, distance time.Duration) func(func(time.Duration) bool) {
	return func(yield func(time.Duration) bool) {
		for i := range n {
			if !yield(time.Duration(i) * distance) {
				return
			}
		}
	}
}

// quiet waits until the fold of the event log has nothing in flight and the log stands still, and returns the log.
func quiet(t *testing.T, log *eventLog) (events []*schema.Stored) {
	t.Helper()
	var last uint64
	var since time.Time
	eventually(t, 90*time.Second, "nothing in flight", func() (err error) {
		if events, err = log.read(); err != nil {
			return err
		}
		state := schema.NewState()
		for _, e := range events {
			state.Apply(e)
		}
		state.ForgetOrphans(math.MaxInt64) // wishes to cancel what was never stored: everyStored looks at what was
		if state.Seq != last {
			last, since = state.Seq, time.Now()
		}
		for _, r := range state.Requests {
			return fmt.Errorf("%d requests in flight, such as %+v", len(state.Requests), *r)
		}
		if still := time.Since(since); still < time.Second {
			return fmt.Errorf("the log grew %v ago", still)
		}
		return nil
	})
	return events
}

// everyStored checks that each request in REQUESTS was accepted once and has one end.
func everyStored(t *testing.T, log *eventLog, events []*schema.Stored) {
	t.Helper()
	accepted, ended := map[schema.RequestID]int{}, map[schema.RequestID]int{}
	lost := map[schema.WorkerID]bool{}
	for _, e := range events {
		switch {
		case e.Type == schema.WorkerDown:
			lost[e.Worker] = true
		case e.Type == schema.Accepted:
			accepted[e.Request]++
		case e.Type.Terminal() && !lost[e.Worker]: // a lost worker's late word does not count
			ended[e.Request]++
		}
	}
	requests, err := log.requests()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range requests {
		if accepted[id] != 1 || ended[id] != 1 {
			t.Errorf("%s was stored once, accepted %d times and has ended %d times: %s", id, accepted[id], ended[id], story(events, id))
		}
	}
	t.Logf("%d requests were stored, %d events", len(requests), len(events))
}

// compareRows compares ClickHouse's events, type by type, with the stream's.
func (d *deployment) compareRows(events []*schema.Stored) error {
	want := map[string]int64{}
	for _, e := range events {
		want[string(e.Type)]++
	}
	first, last := events[0].Seq, events[len(events)-1].Seq
	rows, err := d.query(fmt.Sprintf("SELECT toString(type) AS type, count() AS n, uniqExact(seq) AS seqs FROM events WHERE seq BETWEEN %d AND %d GROUP BY type ORDER BY type", first, last))
	if err != nil {
		return err
	}
	got := map[string]int64{}
	for _, row := range rows {
		n, err := number(row, "n")
		if err != nil {
			return err
		}
		seqs, err := number(row, "seqs")
		if err != nil {
			return err
		}
		if n != seqs {
			return fmt.Errorf("%v: %d rows for %d sequences", row["type"], n, seqs)
		}
		got[fmt.Sprint(row["type"])] = n
	}
	for typ, n := range want {
		if got[typ] != n {
			return fmt.Errorf("%s: %d rows for %d events (all: %v for %v)", typ, got[typ], n, got, want)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("rows %v for events %v", got, want)
	}
	return nil
}

// settle joins the client's ledger to the event log, request by request.
func settle(t *testing.T, ledger []*load.Record, jobs []job, events []*schema.Stored) {
	t.Helper()
	byClient := map[string][]schema.RequestID{}
	lives := map[schema.RequestID][]*schema.Stored{}
	lost := map[schema.WorkerID]bool{}
	for _, e := range events {
		if e.Type == schema.WorkerDown {
			lost[e.Worker] = true
		}
		if e.ClientRequest != "" && !slices.Contains(byClient[e.ClientRequest], e.Request) {
			byClient[e.ClientRequest] = append(byClient[e.ClientRequest], e.Request)
		}
		if e.Type.Terminal() && !lost[e.Worker] { // a lost worker's late word does not count
			lives[e.Request] = append(lives[e.Request], e)
		}
	}
	seen := map[string]int{}
	for i, r := range ledger {
		ids := byClient[r.ClientID]
		if r.RequestID != "" && !slices.Contains(ids, schema.RequestID(r.RequestID)) {
			ids = append(ids, schema.RequestID(r.RequestID)) // its received event was lost with the ingress
		}
		var ends []*schema.Stored
		for _, id := range ids {
			ends = append(ends, lives[id]...)
		}
		seen[fmt.Sprintf("%s: %s", r.Outcome, endNames(ends))]++
		if len(ids) > 1 || len(ends) > 1 {
			t.Errorf("%s (%s): %d requests, ends %s", r.ClientID, r.Outcome, len(ids), kinds(ends))
			continue
		}
		if !r.Headers() {
			continue // nothing was promised
		}
		if len(ends) != 1 {
			t.Errorf("%s (%s, %d, %q) has no end", r.ClientID, r.Outcome, r.Status, r.Err)
			continue
		}
		if want := endsFor(r); !slices.Contains(want, ends[0].Type) {
			t.Errorf("%s: its client saw %s (%d, %s, %q), the log says %s; want one of %v", r.ClientID, r.Outcome, r.Status, r.Reason, r.Err, kinds(ends), want)
		}
		if r.Outcome == load.OK {
			if err := jobs[i].complete(r); err != nil {
				t.Errorf("%s: %v", r.ClientID, err)
			}
			if int(ends[0].OutputTokens) != jobs[i].tokens {
				t.Errorf("%s: finished with %d tokens, asked for %d", r.ClientID, ends[0].OutputTokens, jobs[i].tokens)
			}
		}
	}
	summary, err := json.MarshalIndent(seen, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("what clients saw, and what the log says: %s", summary)
}

// endsFor is how a request may have ended whose client saw this.
func endsFor(r *load.Record) []schema.Type {
	switch r.Outcome {
	case load.OK:
		return []schema.Type{schema.Finished}
	case load.Refused:
		return []schema.Type{schema.Refused}
	case load.StreamError, load.HTTPError:
		return []schema.Type{schema.Failed, schema.Cancelled}
	case load.Disconnected:
		return []schema.Type{schema.Cancelled, schema.Finished} // it may have ended before the ingress noticed
	case load.Truncated: // the ingress was killed: what ran then is cancelled, if it had not ended already
		return []schema.Type{schema.Cancelled, schema.Finished}
	}
	return nil
}

func endNames(ends []*schema.Stored) string {
	if len(ends) == 0 {
		return "none"
	}
	var names []string
	for _, e := range ends {
		names = append(names, string(e.Type))
	}
	return strings.Join(names, ", ")
}
