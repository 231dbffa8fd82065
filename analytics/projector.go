package analytics

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/cadence-slo/cadence/analytics/sql"
	"github.com/cadence-slo/cadence/streams"
)

var (
	// ErrProjector is wrapped by every error of ProjectorConfig.Validate.
	ErrProjector = errors.New("analytics: invalid projector configuration")
	// ErrDeposed is returned by Run when another projector has taken the streams over.
	ErrDeposed = errors.New("analytics: another projector has taken over")
)

// ProjectorConfig configures a [Projector]; see [DefaultProjectorConfig].
type ProjectorConfig struct {
	// FlushInterval is the longest time that a message waits to be inserted, 10 ms to 1 min.
	FlushInterval time.Duration `help:"longest time that an event waits to be inserted into ClickHouse" default:"1s"`
	// FlushRows is the largest number of messages in an insert, 1 to 100,000.
	FlushRows int `help:"largest number of events in one insert" default:"5000"`
	// InsertTimeout bounds one insert, 1 s to 10 min. What was not confirmed is repeated.
	InsertTimeout time.Duration `help:"time limit of one insert" default:"30s"`
	// StopTimeout bounds the insert of what has gathered when Run is told to stop.
	StopTimeout time.Duration `help:"time limit of the last insert at shutdown" default:"5s"`
	// EventDays is how long events stay in ClickHouse, by store time; 0 is for ever.
	EventDays int `help:"days that events are kept in ClickHouse; 0 keeps them for ever" default:"90"`
	// StepDays is how long engine steps stay in ClickHouse; 0 is for ever.
	StepDays int `help:"days that engine steps are kept in ClickHouse; 0 keeps them for ever" default:"14"`
}

// DefaultProjectorConfig inserts every second.
func DefaultProjectorConfig() ProjectorConfig {
	return ProjectorConfig{
		FlushInterval: time.Second, FlushRows: 5000,
		InsertTimeout: 30 * time.Second, StopTimeout: 5 * time.Second,
		EventDays: 90, StepDays: 14,
	}
}

// Validate returns ErrProjector, naming the key and the allowed values.
func (c *ProjectorConfig) Validate() error {
	const maxDays = 36500
	switch {
	case c.FlushInterval < 10*time.Millisecond || c.FlushInterval > time.Minute:
		return fmt.Errorf("%w: flush_interval is %v, want 10ms to 1m", ErrProjector, c.FlushInterval)
	case c.FlushRows < 1 || c.FlushRows > 100_000:
		return fmt.Errorf("%w: flush_rows is %d, want 1 to 100000", ErrProjector, c.FlushRows)
	case c.InsertTimeout < time.Second || c.InsertTimeout > 10*time.Minute:
		return fmt.Errorf("%w: insert_timeout is %v, want 1s to 10m", ErrProjector, c.InsertTimeout)
	case c.StopTimeout < 0:
		return fmt.Errorf("%w: stop_timeout is %v, want 0 or more", ErrProjector, c.StopTimeout)
	case c.EventDays < 0 || c.EventDays > maxDays:
		return fmt.Errorf("%w: event_days is %d, want 0 (for ever) to %d", ErrProjector, c.EventDays, maxDays)
	case c.StepDays < 0 || c.StepDays > maxDays:
		return fmt.Errorf("%w: step_days is %d, want 0 (for ever) to %d", ErrProjector, c.StepDays, maxDays)
	}
	return nil
}

// Projector copies EVENTS and STEPS into their tables. Delivery is at least once, its
// effect exactly once: over the sequences that a stream holds, the rows equal the
// messages, whatever died in between. See the package documentation for how.
//
// One projector runs at a time: a second one takes over, and the first returns
// ErrDeposed from Run.
type Projector struct {
	conn      ch.Conn
	log       *slog.Logger
	cfg       ProjectorConfig
	metrics   *projectorMetrics
	pipelines []*pipeline
}

// NewProjector returns a projector from client's streams to conn's database. Both stay
// the caller's and must outlive Run.
func NewProjector(cfg ProjectorConfig, client *streams.Client, conn ch.Conn, log *slog.Logger) (*Projector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Projector{conn: conn, log: log.With("component", "projector"), cfg: cfg, metrics: newProjectorMetrics()}
	instance := rand.Text()
	for _, source := range []source{
		{stream: streams.Events, table: "events", newBlock: newEventBlock},
		{stream: streams.Steps, table: "engine_steps", newBlock: newStepBlock},
	} {
		p.pipelines = append(p.pipelines, newPipeline(source, cfg, client, conn, instance, p.log, p.metrics.of(source.table)))
	}
	return p, nil
}

// Collectors are the projector's metrics, for the caller to register.
func (p *Projector) Collectors() []prometheus.Collector { return p.metrics.collectors() }

// Run migrates the schema, then copies until ctx ends; then it inserts what has gathered,
// within StopTimeout, and returns nil. While ClickHouse or NATS cannot be reached it
// waits and goes on where it was. Errors wrap ErrMigration or ErrDeposed.
func (p *Projector) Run(ctx context.Context) error {
	if err := p.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, pl := range p.pipelines {
		group.Go(func() error { return pl.run(ctx) })
	}
	return group.Wait()
}

// CaughtUp waits until everything that the streams hold when it is called is in
// ClickHouse, while Run runs. It returns ctx's error if that ends first.
func (p *Projector) CaughtUp(ctx context.Context) error {
	for _, pl := range p.pipelines {
		if err := pl.caughtUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare brings the schema up to date, however long the server takes to answer.
func (p *Projector) prepare(ctx context.Context) error {
	for wait := backoffMin; ; wait = min(2*wait, backoffMax) {
		_, err := Migrate(ctx, p.conn, p.log)
		if err == nil {
			err = p.setRetention(ctx)
		}
		if err == nil || errors.Is(err, ErrMigration) || errors.Is(err, sql.ErrFile) {
			return err
		}
		p.log.Warn("schema not ready, trying again", "error", err)
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// pause waits, or returns ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
