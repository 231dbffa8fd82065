package service

import (
	"context"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/cadence-slo/cadence/trainer/trainertest"
)

var quiet = slog.New(slog.DiscardHandler)

// start is when the first round of the tests began: on a round's edge, and an hour and more ago.
func start() time.Time { return time.Now().Add(-8 * time.Hour).Truncate(10 * time.Minute).UTC() }

const (
	fingerprint = trainertest.Fingerprint
	perRound    = trainertest.PerRound
)

// pool is an embedded server with a store of models.
type pool struct {
	*streamstest.Server
	client *streams.Client
	models *streams.ModelStore
}

func newPool(t testing.TB) *pool {
	t.Helper()
	p := &pool{Server: streamstest.Start(t)}
	p.client = p.Client(t)
	var err error
	if p.models, err = p.client.Models(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// store stores events.
func (p *pool) store(t testing.TB, events []*schema.Event) {
	t.Helper()
	w := p.client.NewEventWriter(t.Context(), len(events), func(id string, err error) { t.Errorf("%s: %v", id, err) })
	for _, e := range events {
		if err := w.Emit(e); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// service learns from the stream.
func (p *pool) service(t testing.TB, change func(*Options)) *Service {
	t.Helper()
	c := DefaultConfig()
	c.Pool, c.Level, c.MinRows, c.GroupRows, c.Profile = "p", 0.9, 300, 100, "mock"
	o := Options{Config: c, Source: Stream{p.client}, Client: p.client, Models: p.models, Name: "trainer-1", Code: "test", Log: quiet}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// current is the pool's model, empty if it has none.
func (p *pool) current(t testing.TB) streams.ModelPointer {
	t.Helper()
	h, err := p.models.History(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	if len(h) == 0 {
		return streams.ModelPointer{}
	}
	return h[0]
}

// changes are the events about models so far.
func (p *pool) changes(t testing.TB) []*schema.Event {
	t.Helper()
	var all []*schema.Event
	err := Stream{p.client}.read(t.Context(), []schema.Type{schema.ModelPublished, schema.ModelRejected, schema.ModelRolledBack}, time.Time{}, func(e *schema.Event) error {
		all = append(all, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// projected is a database with all that the pool's streams hold.
func (p *pool) projected(t testing.TB) ch.Conn {
	t.Helper()
	u, err := url.Parse(shared.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + notName.ReplaceAllString(strings.ToLower(t.Name()), "_")
	conn, err := clickhouse.Open(t.Context(), u.String(), clickhouse.CreateDatabase())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	cfg := analytics.DefaultProjectorConfig()
	cfg.FlushInterval = 20 * time.Millisecond
	projector, err := analytics.NewProjector(cfg, p.client, conn, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- projector.Run(ctx) }()
	wait, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	err = projector.CaughtUp(wait)
	cancel()
	if ran := <-done; err != nil || ran != nil {
		t.Fatal(err, ran)
	}
	return conn
}

func mockProfile(t testing.TB) []byte {
	t.Helper()
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
