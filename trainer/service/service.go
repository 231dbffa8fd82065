package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/trainer"
	"github.com/prometheus/client_golang/prometheus"
)

// Options are what a Service works with.
type Options struct {
	Config Config
	Source Source
	// Client reaches the workers and the event log, Models the running model; both nil: there is no pool, and nothing is published.
	Client *streams.Client
	Models *streams.ModelStore
	// Champion is the running model where Models is nil; nil: none.
	Champion *artifact.Artifact
	Name     string // of this instance; see schema.ValidName
	Code     string // version of this program, for the artifact
	Log      *slog.Logger
}

// Service trains. It has one owner, but for its Collectors.
type Service struct {
	Options
	clock   func() time.Time
	engines *engines // nil without a client
	stop    func()
	metrics metrics
	// reached is for tests: a death at a point.
	reached func(point string) error
}

// New returns a service, which is to be closed. ErrConfig, and streams.ErrUnavailable.
func New(o Options) (*Service, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	s := &Service{Options: o, clock: time.Now, stop: func() {}, metrics: newMetrics(), reached: func(string) error { return nil }}
	if o.Client != nil && o.Config.Profile == "" {
		var err error
		if s.engines, s.stop, err = watchEngines(o.Client, o.Config.Pool); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close ends the subscription.
func (s *Service) Close() { s.stop() }

// champion is the running model, nil if there is none, with its name and where the pointer is.
func (s *Service) champion(ctx context.Context) (*artifact.Artifact, streams.ModelPointer, error) {
	if s.Models == nil {
		return s.Champion, streams.ModelPointer{}, nil
	}
	p, err := s.Models.Current(ctx, s.Config.Pool)
	if errors.Is(err, streams.ErrNoModel) || err == nil && p.Artifact == "" {
		return nil, p, nil
	}
	if err != nil {
		return nil, p, err
	}
	file, err := s.Models.Get(ctx, p.Artifact)
	if err == nil {
		var a *artifact.Artifact
		if a, err = artifact.Decode(file); err == nil {
			return a, p, nil
		}
	}
	if errors.Is(err, streams.ErrUnavailable) || ctx.Err() != nil {
		return nil, p, err
	}
	// No ingress can run it either.
	s.Log.Warn("the running model cannot be read: the candidate is compared with none", "artifact", p.Artifact, "error", err)
	return nil, p, nil
}

// gather reads the source.
func (s *Service) gather(ctx context.Context, mark time.Time) (*trainer.Collector, error) {
	c := &s.Config
	collector, err := trainer.NewCollector(c.PerStratum, c.Seed, c.rounding(), c.Fingerprint)
	if err != nil {
		return nil, err
	}
	collector.Mark(mark)
	since := s.clock().Add(-c.Window)
	if _, file := s.Source.(Log); file { // it is taken whole, whenever it was written
		since = time.Time{}
	}
	err = s.Source.Traces(ctx, c.Pool, since, func(t *trainer.Trace) error { collector.Add(t); return nil })
	return collector, err
}

// Train makes a candidate and compares it with the running model, and unless it is only to be tried, publishes it or tells that it was
// rejected. The candidate is returned too. Errors are those of the source, of trainer.Train (trainer.ErrRounds if there is too little
// yet), ErrProfile, and of the stores; streams.ErrModelMoved if another trainer or an operator moved the pointer meanwhile.
func (s *Service) Train(ctx context.Context, try bool) (*Report, []byte, error) {
	champion, pointer, err := s.champion(ctx)
	if err != nil {
		return nil, nil, err
	}
	var mark time.Time
	if champion != nil {
		mark = champion.Header.To
	}
	collector, err := s.gather(ctx, mark)
	if err != nil {
		return nil, nil, err
	}
	return s.train(ctx, collector, champion, pointer, try)
}

func (s *Service) train(ctx context.Context, collector *trainer.Collector, champion *artifact.Artifact, pointer streams.ModelPointer, try bool) (*Report, []byte, error) {
	began := s.clock()
	seen, err := collector.Engine()
	if err != nil {
		return nil, nil, err
	}
	rows := seen.Rows()
	if n := trainer.Count(rows); n < trainer.Rotations { // before a worker is waited for
		return nil, nil, fmt.Errorf("%w: %d requests are of %d rounds of %d minutes, it takes %d", trainer.ErrRounds, len(rows), n, s.Config.RoundMinutes, trainer.Rotations)
	}
	p, err := s.profile(ctx, seen.Fingerprint)
	if err != nil {
		return nil, nil, err
	}
	if champion != nil {
		if err := champion.Header.Compatible(seen.Fingerprint, feature.Table()); err != nil {
			s.Log.Info("the running model is of another engine or other features: the candidate is compared with none", "error", err)
			champion = nil
		}
	}
	plan := s.Config.plan()
	header := artifact.Header{Created: began.UTC(), Code: s.Code, Backend: seen.Fingerprint, Profile: p, Strata: seen.Strata()}
	t, err := trainer.Train(rows, champion, header, seen.Lengths(), &plan)
	if err != nil {
		return nil, nil, err
	}
	file, err := t.Artifact.Encode()
	if err != nil {
		return nil, nil, err
	}
	r := &Report{Pool: s.Config.Pool, Source: s.Source.Name(), Fingerprint: seen.Fingerprint, Profile: p.Name, Artifact: artifact.Digest(file), Bytes: len(file),
		Swap: t.Outcome.Swap, Reason: t.Outcome.Reason, Message: message(t, &plan.Rule), From: seen.From, To: seen.To, Rounds: t.Rounds, Rows: seen.Seen,
		Censored: seen.Censored, Skipped: collector.Skipped(), Fit: t.Fit, Calibrate: t.Calibrate, Test: t.Test, Compared: t.Compared, Level: s.Config.Level,
		Candidate: coverage(&t.Outcome.Challenger), Width: t.Outcome.Width, Error: t.Error, PhysicsError: t.Physics, Trees: t.Trees, Strata: seen.Strata()}
	if champion != nil {
		running := coverage(&t.Outcome.Champion)
		r.Running, r.Champion = &running, pointer.Artifact
	}
	s.metrics.trained(r, s.clock().Sub(began))
	if try || s.Models == nil {
		return r, file, nil
	}
	if !r.Swap {
		s.tell(ctx, schema.ModelRejected, r.Artifact, string(r.Reason), r.Message)
		return r, file, nil
	}
	if err := s.publish(ctx, file, pointer, r); err != nil {
		return r, file, err
	}
	r.Published = true
	return r, file, nil
}

// profile is what the rows' latencies were simulated with.
func (s *Service) profile(ctx context.Context, fingerprint string) (*profile.Profile, error) {
	if s.Config.Profile != "" {
		return openProfile(s.Config.Profile)
	}
	if s.engines == nil {
		return nil, fmt.Errorf("%w: allowed: the flag profile, where no worker can be asked", ErrProfile)
	}
	return s.engines.of(ctx, s.Config.Pool, fingerprint, s.Config.ProfileWait)
}

// publish stores a file and then moves the pointer to it, from where it was.
func (s *Service) publish(ctx context.Context, file []byte, from streams.ModelPointer, r *Report) error {
	if err := s.reached("made"); err != nil {
		return err
	}
	digest, err := s.Models.Put(ctx, file)
	if err != nil {
		return err
	}
	if err := s.reached("stored"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// From here on it is done to the end: a pointer whose move nobody tells of is of no use to anybody.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	to := streams.ModelPointer{Pool: s.Config.Pool, Artifact: digest, Source: s.Name, Reason: string(r.Reason)}
	if err := Move(ctx, s.Models, from.Revision, to); err != nil {
		return err
	}
	if err := s.reached("moved"); err != nil {
		return err
	}
	s.tell(ctx, schema.ModelPublished, digest, string(r.Reason), r.Message)
	return nil
}

// Move moves a pointer from a revision. Where the store did not answer it looks whether the pointer has moved all the same.
func Move(ctx context.Context, models *streams.ModelStore, from uint64, to streams.ModelPointer) error {
	_, err := models.Point(ctx, from, to)
	if errors.Is(err, streams.ErrUnavailable) {
		if now, look := models.Current(ctx, to.Pool); look == nil && now.Revision > from && now.Artifact == to.Artifact && now.Source == to.Source {
			return nil
		}
	}
	return err
}

// tell stores an event. What it tells has happened: without it only analysts miss something.
func (s *Service) tell(ctx context.Context, typ schema.Type, digest, reason, text string) {
	if err := Tell(ctx, s.Client, s.Name, s.Config.Pool, typ, digest, reason, text, s.clock()); err != nil {
		s.Log.Error("event not stored", "type", typ, "artifact", digest, "error", err)
	}
}

// tellTimeout bounds the move of a pointer, and the storing of an event about it.
const tellTimeout = 5 * time.Second

// Tell stores an event about a pool's model: of what has happened, so that the end of ctx does not keep it from that.
func Tell(ctx context.Context, c *streams.Client, source, pool string, typ schema.Type, digest, reason, text string, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	_, err := c.PublishEvent(ctx, &schema.Event{Type: typ, Time: now.UnixNano(), Source: source, Pool: pool, Artifact: digest, Reason: reason, Message: text})
	return err
}

// Run looks at once and then every interval, and trains when there is enough that is new, until ctx ends. What goes wrong is logged, and
// the next look begins anew.
func (s *Service) Run(ctx context.Context, schedule Schedule) error {
	if err := schedule.Validate(); err != nil {
		return err
	}
	if s.Models == nil || s.Client == nil {
		return fmt.Errorf("%w: without a store of models nothing can be published", ErrConfig)
	}
	tick := time.NewTicker(schedule.Interval)
	defer tick.Stop()
	var tried time.Time // the latest arrival that an attempt has seen
	for {
		to, err := s.look(ctx, schedule, tried)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, trainer.ErrRounds), errors.Is(err, trainer.ErrEngine):
			s.Log.Info("nothing to train yet", "why", err)
		case err != nil:
			s.metrics.failed.Inc()
			s.Log.Error("training failed; the running model stays", "error", err, "again_in", schedule.Interval)
		default:
			tried = to
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look trains if there is enough, and returns the latest arrival that an attempt has seen.
func (s *Service) look(ctx context.Context, schedule Schedule, tried time.Time) (time.Time, error) {
	champion, pointer, err := s.champion(ctx)
	if err != nil {
		return tried, err
	}
	mark := tried
	if champion != nil && champion.Header.To.After(mark) {
		mark = champion.Header.To
	}
	collector, err := s.gather(ctx, mark)
	if err != nil {
		return tried, err
	}
	seen, err := collector.Engine()
	if err != nil {
		return tried, err
	}
	s.metrics.waiting.Set(float64(seen.New))
	if seen.New < schedule.MinNew {
		s.Log.Info("not enough that is new", "requests", seen.New, "want", schedule.MinNew)
		return tried, nil
	}
	r, _, err := s.train(ctx, collector, champion, pointer, false)
	if err != nil {
		return tried, err
	}
	s.Log.Info("trained", "artifact", r.Artifact, "published", r.Published, "reason", r.Reason, "message", r.Message, "requests", r.Rows, "rounds", r.Rounds)
	if n, err := s.Models.Prune(ctx, s.clock().Add(-schedule.KeepFiles)); err != nil {
		s.Log.Warn("files of old models stay", "error", err)
	} else if n > 0 {
		s.Log.Info("files of old models deleted", "files", n)
	}
	return seen.To, nil
}

// Collectors are the service's metrics, for the caller to register.
func (s *Service) Collectors() []prometheus.Collector { return s.metrics.collectors() }
