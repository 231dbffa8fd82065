package service

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/analytics/clickhouse"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

var quiet = slog.New(slog.DiscardHandler)

// start is when the first round of the tests began: on a round's edge, and an hour and more ago.
func start() time.Time { return time.Now().Add(-8 * time.Hour).Truncate(10 * time.Minute).UTC() }

const fingerprint = "mock/1"

// bits is randomness for ids.
type bits struct{ rng *rand.Rand }

func (b bits) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b.rng.Uint32())
	}
	return len(p), nil
}

// round are the events of n requests that arrived within four minutes of a round. Their residual goes with what waits, bent, and scatters
// by so much.
func round(t testing.TB, from time.Time, number, n int, scatter float64) []*schema.Event {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(number), 0x726f756e64))
	begin := from.Add(time.Duration(number) * 10 * time.Minute)
	var all []*schema.Event
	shift := [4]float64{}
	for i := range shift {
		shift[i] = 0.02 * rng.NormFloat64()
	}
	for i := range n {
		at := begin.Add(time.Duration(i) * 4 * time.Minute / time.Duration(n))
		text, err := schema.NewID(at, bits{rng})
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, feature.Count)
		for f := range x {
			x[f] = rng.Float32()
		}
		x[feature.PromptTokens], x[feature.Waiting] = float32(1+rng.IntN(1000)), 3*rng.Float32()
		x[feature.PrefillTokens] = x[feature.PromptTokens] * rng.Float32()
		x[feature.CachedTokens] = x[feature.PromptTokens] - x[feature.PrefillTokens]
		wait := float64(x[feature.Waiting])
		physics := time.Duration((0.5 + 2*wait) * 1e9)
		label := 0.2*wait*wait + shift[i*4/n] + scatter*(0.05+0.05*wait)*rng.NormFloat64()
		event := func(typ schema.Type) *schema.Event {
			return &schema.Event{Type: typ, Time: at.UnixNano(), Source: "test", Request: schema.RequestID(text), Pool: "p", Model: "m", Tenant: "t", Ingress: "i",
				Kind: schema.KindChat, RequestSeq: uint64(i + 1)}
		}
		admitted, dispatched, delivered := event(schema.Admitted), event(schema.Dispatched), event(schema.Delivered)
		admitted.PromptTokens, admitted.MaxTokens, admitted.Physics, admitted.Features, admitted.Propensity = int32(x[feature.PromptTokens]), 64, physics, x, 1
		if i%2 == 0 {
			admitted.Class = schema.Guaranteed
		}
		dispatched.Attempt, dispatched.Worker = 1, "w1"
		delivered.E2E, delivered.OutputTokens, delivered.Reason = time.Duration(float64(physics)*math.Exp(label)), int32(1+rng.IntN(64)), string(schema.OutcomeComplete)
		switch i % 100 {
		case 17:
			delivered.Reason = string(schema.OutcomeDisconnected)
		case 18:
			delivered.Reason, delivered.Message = string(schema.OutcomeError), string(schema.FailedEngine)
		}
		all = append(all, admitted, dispatched, delivered)
	}
	return all
}

// rounds are several of them, behind the event that a worker is up.
func rounds(t testing.TB, from time.Time, first, count int, scatter float64) []*schema.Event {
	all := []*schema.Event{{Type: schema.WorkerUp, Time: from.UnixNano(), Source: "w1", Worker: "w1", Pool: "p", Fingerprint: fingerprint}}
	for i := range count {
		all = append(all, round(t, from, first+i, perRound, scatter)...)
	}
	return all
}

const perRound = 400

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
	wait, stop := context.WithTimeout(t.Context(), time.Minute)
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
