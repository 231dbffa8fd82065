package analytics

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

// fast is a configuration of many small ranges.
func fast() ProjectorConfig {
	cfg := DefaultProjectorConfig()
	cfg.FlushInterval, cfg.FlushRows = 20*time.Millisecond, 500
	return cfg
}

func newProjector(t testing.TB, cfg ProjectorConfig, c *streams.Client, conn ch.Conn) *Projector {
	t.Helper()
	p, err := NewProjector(cfg, c, conn, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs p until the returned function is called, which returns what Run did.
func start(t testing.TB, p *Projector) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var result error
	stopped := false
	stop = func() error {
		if !stopped {
			cancel()
			result, stopped = <-done, true
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func caughtUp(t testing.TB, p *Projector) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := p.CaughtUp(ctx); err != nil {
		t.Fatal(err)
	}
}

func newID(t testing.TB) schema.RequestID {
	t.Helper()
	id, err := schema.NewID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return schema.RequestID(id)
}

// life is the events of one request that finishes.
func life(id schema.RequestID) []*schema.Event {
	base := schema.Event{Time: time.Now().UnixNano(), Source: "test", Request: id, Pool: "default", Model: "m", Tenant: "acme", Ingress: "i1", PromptTokens: 100, MaxTokens: 64}
	event := func(typ schema.Type, change func(*schema.Event)) *schema.Event {
		e := base
		e.Type = typ
		change(&e)
		return &e
	}
	attempt := func(e *schema.Event) { e.Attempt, e.Worker = 1, "w1" }
	return []*schema.Event{
		event(schema.Received, func(e *schema.Event) { e.Stream, e.Kind, e.ClientRequest = true, schema.KindChat, "mine" }),
		event(schema.Admitted, func(e *schema.Event) { e.RequestSeq = 7 }),
		event(schema.Accepted, func(e *schema.Event) { e.RequestSeq = 7 }),
		event(schema.Dispatched, func(e *schema.Event) { attempt(e); e.QueueTime = 3 * time.Millisecond }),
		event(schema.PrefillStarted, func(e *schema.Event) { attempt(e); e.CachedTokens = 32 }),
		event(schema.FirstToken, func(e *schema.Event) { attempt(e); e.PrefillTime = 40 * time.Millisecond }),
		event(schema.Finished, func(e *schema.Event) {
			attempt(e)
			e.Reason, e.OutputTokens, e.CachedTokens = "length", 64, 32
			e.PrefillTime, e.DecodeTime = 40*time.Millisecond, 900*time.Millisecond
		}),
		event(schema.Delivered, func(e *schema.Event) {
			e.Reason, e.OutputTokens, e.TTFT, e.E2E = "complete", 64, 50*time.Millisecond, 995*time.Millisecond
		}),
	}
}

// publish stores n events, the lives of n/8 requests.
func publish(t testing.TB, c *streams.Client, n int) {
	t.Helper()
	w := c.NewEventWriter(context.WithoutCancel(t.Context()), 4096, func(id string, err error) { t.Errorf("%s: %v", id, err) })
	for range n / 8 {
		for _, e := range life(newID(t)) {
			if err := w.Emit(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// publishRaw stores a body that no service writes.
func publishRaw(t testing.TB, c *streams.Client, subject, body string) {
	t.Helper()
	if _, err := c.JetStream().Publish(t.Context(), subject, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// checkEqual compares the table with the stream: each message, less the given number of
// dead letters, is one row.
func checkEqual(t testing.TB, c *streams.Client, conn ch.Conn, stream, table string, deadLetters uint64) {
	t.Helper()
	s, err := c.JetStream().Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info := s.CachedInfo()
	id := stream + "@" + info.Created.UTC().Format(time.RFC3339Nano)
	var rows, sequences, first, last uint64
	scan(t, conn, fmt.Sprintf("SELECT count(), uniqExact(seq), min(seq), max(seq) FROM %s WHERE stream_id = '%s' AND seq BETWEEN %d AND %d", table, id, info.State.FirstSeq, info.State.LastSeq),
		&rows, &sequences, &first, &last)
	if want := info.State.Msgs - deadLetters; rows != want || sequences != want {
		t.Errorf("%s: %d rows, %d sequences in [%d, %d]; the stream has %d messages in [%d, %d] and %d dead letters",
			table, rows, sequences, first, last, info.State.Msgs, info.State.FirstSeq, info.State.LastSeq, deadLetters)
	}
}

// deadLetters returns the reasons of the dead letters.
func deadLetters(t testing.TB, c *streams.Client) []string {
	t.Helper()
	s, err := c.JetStream().Stream(t.Context(), streams.DeadLetters)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq && s.CachedInfo().State.Msgs > 0; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		reasons = append(reasons, m.Header.Get("Cadence-Reason"))
	}
	return reasons
}

func TestProjectsBothStreams(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	p := newProjector(t, fast(), c, conn)
	stop := start(t, p)
	publish(t, c, 4000)
	for i := range 1000 {
		if err := c.PublishStep(&schema.Step{Worker: "w1", Time: time.Now().UnixNano(), Step: uint64(i), DecodeBatch: 4, Duration: time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "steps in the stream", func() bool {
		u, err := c.Usage(t.Context(), streams.Steps)
		return err == nil && u.Messages == 1000
	})
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 0)
	checkEqual(t, c, conn, streams.Steps, "engine_steps", 0)

	var requests, odd uint64
	scan(t, conn, "SELECT count() FROM requests", &requests)
	scan(t, conn, `SELECT countIf(NOT (outcome = 'finished' AND reason = 'length' AND delivered = 'complete' AND attempts = 1 AND worker = 'w1'
		AND prompt_tokens = 100 AND cached_tokens = 32 AND output_tokens = 64 AND max_tokens = 64 AND queue_ns = 3e6 AND prefill_ns = 4e7
		AND decode_ns = 9e8 AND ttft_ns = 5e7 AND e2e_ns = 995e6 AND tpot_ns = 15e6 AND class = 'best-effort' AND stream AND kind = 'chat'
		AND client_request_id = 'mine' AND tenant = 'acme' AND model = 'm' AND pool = 'default' AND abs(dateDiff('second', arrived, received)) < 60)) FROM requests`, &odd)
	if requests != 500 || odd != 0 {
		t.Errorf("%d requests, %d of them odd", requests, odd)
	}

	for name, want := range map[string]float64{
		"rows_total/events": 4000, "rows_total/engine_steps": 1000, "dead_letters_total/events": 0, "inserts_total/rejected/events": 0,
		"lag_messages/events": 0, "lag_seconds/events": 0, "position_sequence/events": 4000, "sessions_total/events": 1,
	} {
		if got := metric(t, p, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestMalformedEventsBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	publish(t, c, 4992)
	publishRaw(t, c, "evt.received.0", `{"v":1,"type":"received","time_ns":`)
	publish(t, c, 5000)
	publishRaw(t, c, "evt.received.0", `{"v":1,"type":"unheard_of","time_ns":1,"source":"x"}`)
	publishRaw(t, c, "evt.received.0", `{"v":9,"type":"received"}`)
	publishRaw(t, c, "step.w1", `not JSON`)
	p := newProjector(t, DefaultProjectorConfig(), c, conn)
	start(t, p)
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 3)
	checkEqual(t, c, conn, streams.Steps, "engine_steps", 1)
	reasons := strings.Join(deadLetters(t, c), "\n")
	for _, want := range []string{"unexpected end", `type is "unheard_of"`, "version 9", "invalid character"} {
		if strings.Count(reasons, want) != 1 {
			t.Errorf("dead letters:\n%s\nwant one with %q", reasons, want)
		}
	}
	if n := metric(t, p, "dead_letters_total/events"); n != 3 {
		t.Errorf("metric counts %v dead letters", n)
	}
}

// What Go takes and the table does not: the row is found, the others land.
func TestRowsThatTheTableRefuses(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), migrated(t)
	exec(t, conn, "ALTER TABLE events ADD CONSTRAINT no_poison CHECK tenant != 'poison'")
	poison := func() {
		e := life(newID(t))[0]
		e.Tenant = "poison"
		if _, err := c.PublishEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	poison()
	publish(t, c, 800)
	poison()
	poison()
	publish(t, c, 200)
	cfg := fast()
	cfg.FlushInterval = time.Second
	p := newProjector(t, cfg, c, conn)
	stop := start(t, p)
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 3)
	if reasons := deadLetters(t, c); len(reasons) != 3 || !strings.Contains(reasons[0], "no_poison") {
		t.Errorf("dead letters: %q", reasons)
	}

	// A table that refuses so much is at fault, not the rows: nothing is given up.
	// What landed meanwhile is not inserted again when it is mended.
	exec(t, conn, "ALTER TABLE events ADD CONSTRAINT nothing CHECK seq % 8 != 0")
	const refused = "inserts_total/rejected/events"
	before := metric(t, p, refused)
	publish(t, c, 800)
	eventually(t, "more refusals than are believed", func() bool { return metric(t, p, refused) > before+7*maxRejected })
	exec(t, conn, "ALTER TABLE events DROP CONSTRAINT nothing")
	caughtUp(t, p)
	if n := len(deadLetters(t, c)); n != 3 {
		t.Errorf("%d dead letters, want 3", n)
	}
	checkEqual(t, c, conn, streams.Events, "events", 3)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A stream that was made again has the sequences of the old one and other messages; a
// purged one goes on.
func TestStreamPurgedAndMadeAgain(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	publish(t, c, 1000)
	caughtUp(t, p)
	stream, err := c.JetStream().Stream(t.Context(), streams.Events)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, c, 400)
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 0)
	if err := c.JetStream().DeleteStream(t.Context(), streams.Events); err != nil {
		t.Fatal(err)
	}
	if err := c.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, c, 1000)
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 0)
	var rows, lives uint64
	scan(t, conn, "SELECT count(), uniqExact(stream_id) FROM events", &rows, &lives)
	if rows != 2400 || lives != 2 {
		t.Errorf("%d rows of %d lives, want 2400 of 2", rows, lives)
	}
}

func TestSecondProjectorTakesOver(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	first := newProjector(t, fast(), c, conn)
	stopFirst := start(t, first)
	publish(t, c, 800)
	caughtUp(t, first)
	second := newProjector(t, fast(), c, conn)
	stopSecond := start(t, second)
	publish(t, c, 8000)
	caughtUp(t, second)
	checkEqual(t, c, conn, streams.Events, "events", 0)
	if err := stopFirst(); !errors.Is(err, ErrDeposed) {
		t.Errorf("first: %v", err)
	}
	if err := stopSecond(); err != nil {
		t.Errorf("second: %v", err)
	}
}

func TestStopLandsWhatHasGathered(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), open(t)
	cfg := DefaultProjectorConfig()
	cfg.FlushInterval = time.Minute
	p := newProjector(t, cfg, c, conn)
	stop := start(t, p)
	publish(t, c, 80)
	stream, err := c.JetStream().Stream(t.Context(), streams.Events)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "delivery", func() bool {
		consumer, err := stream.Consumer(t.Context(), consumerName)
		return err == nil && consumer.CachedInfo().Delivered.Stream == 80
	})
	var rows uint64
	scan(t, conn, "SELECT count() FROM events", &rows)
	if rows != 0 {
		t.Fatalf("%d rows before the interval", rows)
	}
	// Delivered is the server's word; a message may still be on its way.
	eventually(t, "arrival", func() bool { return metric(t, p, "lag_messages/events") > 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	scan(t, conn, "SELECT count() FROM events", &rows)
	if rows == 0 {
		t.Error("nothing landed at the stop")
	}
	for range 2 { // the second life finds nothing to do
		again := newProjector(t, fast(), c, conn)
		stop := start(t, again)
		caughtUp(t, again)
		checkEqual(t, c, conn, streams.Events, "events", 0)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// A server of its own may be reached by the native protocol, which sends columns as the
// table has them.
func TestProjectsOverTheNativeProtocol(t *testing.T) {
	t.Parallel()
	o := clickhouse.DefaultOptions(t.TempDir(), quiet)
	o.NativeTCP = true
	engine, err := clickhouse.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Stop(10 * time.Second) })
	native := strings.NewReplacer("http://", "clickhouse://", engine.Addr(), engine.NativeAddr()).Replace(engine.DSN())
	conn := openDSN(t, withDatabase(t, native))
	c := streamstest.Start(t).Client(t)
	publish(t, c, 800)
	publishRaw(t, c, "evt.received.0", "bad")
	if err := c.PublishStep(&schema.Step{Worker: "w1", Time: 1, Duration: 1}); err != nil {
		t.Fatal(err)
	}
	p := newProjector(t, fast(), c, conn)
	start(t, p)
	caughtUp(t, p)
	checkEqual(t, c, conn, streams.Events, "events", 1)
	var finished uint64
	scan(t, conn, "SELECT count() FROM requests WHERE outcome = 'finished' AND model = 'm'", &finished)
	if finished != 100 {
		t.Errorf("%d requests finished, want 100", finished)
	}
	if _, err := NewQuerier(conn).Query(t.Context(), "SELECT 1", nil, testNow); !errors.Is(err, ch.ErrFormatNativeUnsupported) {
		t.Errorf("querier on the native protocol: %v", err)
	}
}

// metric returns a metric of the projector by its name without prefix and its labels'
// values, as in "inserts_total/ok/events".
func metric(t testing.TB, p *Projector, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			full := strings.TrimPrefix(f.GetName(), "cadence_projector_")
			for _, l := range m.GetLabel() {
				full += "/" + l.GetValue()
			}
			if full == name {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// A session in a zone with a half-hour summer time stores the same times. The clock there
// went back at 15:00 UTC.
func TestSessionInAnotherZone(t *testing.T) {
	t.Parallel()
	c, conn := streamstest.Start(t).Client(t), migrated(t)
	o, err := ch.ParseDSN(withDatabase(t, shared.DSN()))
	if err != nil {
		t.Fatal(err)
	}
	o.Settings = ch.Settings{"session_timezone": "Australia/Lord_Howe"}
	away, err := ch.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = away.Close() })
	change := time.Date(2026, 4, 4, 15, 0, 0, 1, time.UTC)
	var want []int64
	for minutes := -60; minutes <= 60; minutes += 15 {
		e := life(newID(t))[0]
		e.Time = change.Add(time.Duration(minutes) * time.Minute).UnixNano()
		want = append(want, e.Time)
		if _, err := c.PublishEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	p := newProjector(t, fast(), c, away)
	start(t, p)
	caughtUp(t, p)
	for name, conn := range map[string]ch.Conn{"UTC": conn, "Lord Howe": away} {
		var nanos []int64
		scan(t, conn, "SELECT arrayMap(x -> toUnixTimestamp64Nano(x), groupArray(ts)) FROM (SELECT ts FROM events ORDER BY seq)", &nanos)
		if fmt.Sprint(nanos) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, nanos, want)
		}
	}
}

func TestProjectorConfig(t *testing.T) {
	good := DefaultProjectorConfig()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for key, change := range map[string]func(*ProjectorConfig){
		"flush_interval": func(c *ProjectorConfig) { c.FlushInterval = time.Millisecond },
		"flush_rows":     func(c *ProjectorConfig) { c.FlushRows = 0 },
		"insert_timeout": func(c *ProjectorConfig) { c.InsertTimeout = 0 },
		"stop_timeout":   func(c *ProjectorConfig) { c.StopTimeout = -1 },
		"event_days":     func(c *ProjectorConfig) { c.EventDays = -1 },
		"step_days":      func(c *ProjectorConfig) { c.StepDays = 1 << 20 },
	} {
		cfg := DefaultProjectorConfig()
		change(&cfg)
		if _, err := NewProjector(cfg, nil, nil, quiet); !errors.Is(err, ErrProjector) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
