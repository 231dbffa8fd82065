package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/streams"
)

// ModelStore is where the models of latencies are: a *streams.ModelStore.
type ModelStore interface {
	// Watch calls handle with a pool's pointer, if there is one, and with every later one, in order, until stop is called.
	Watch(ctx context.Context, pool string, handle func(streams.ModelPointer)) (stop func(), err error)
	// Get returns a verified file, or streams.ErrNoModel or streams.ErrModelDamaged; what else it returns may pass.
	Get(ctx context.Context, digest string) ([]byte, error)
}

// LatencyModel is the model of latencies that is in use.
type LatencyModel struct {
	// Artifact does not change; nil: none, the physics alone.
	Artifact *artifact.Artifact
	Digest   string // SHA-256 in hexadecimal; empty: none
}

// modelRetry is how long after a failure that may pass, or that an operator may have mended, the same model is tried again.
const modelRetry = 5 * time.Second

// ModelLoader follows a pool's pointer and keeps the last model that is good for the engine: one that is whole, that this code can read, and
// that is of the engine's fingerprint and of this code's features. A bad one changes nothing but what Err says. Where the engine itself
// becomes another, a model of the one before is taken away at once.
//
// Run owns it; Engine, Model and Err are for any goroutine.
type ModelLoader struct {
	store ModelStore
	pool  string
	use   func(LatencyModel)
	log   *slog.Logger
	retry time.Duration

	points  chan streams.ModelPointer // the newest one
	changed chan struct{}             // the engine is another

	mu          sync.Mutex
	fingerprint string // of the engine; empty: not known
	model       LatencyModel
	err         error
}

// NewModelLoader loads the models of a pool. use gets every model that takes the place of the one before, in order, on Run's goroutine; nil
// is allowed.
func NewModelLoader(store ModelStore, pool string, use func(LatencyModel), log *slog.Logger) *ModelLoader {
	if use == nil {
		use = func(LatencyModel) {}
	}
	return &ModelLoader{store: store, pool: pool, use: use, log: log.With("component", "models"), retry: modelRetry,
		points: make(chan streams.ModelPointer, 1), changed: make(chan struct{}, 1)}
}

// Engine says which engine the pool's workers have, by the fingerprint in their settings. Until it is known no model is used. It may be
// repeated, and does not block.
func (l *ModelLoader) Engine(fingerprint string) {
	l.mu.Lock()
	same := l.fingerprint == fingerprint
	l.fingerprint = fingerprint
	l.mu.Unlock()
	if same {
		return
	}
	select {
	case l.changed <- struct{}{}:
	default: // Run has yet to look
	}
}

// Model is the one in use.
func (l *ModelLoader) Model() LatencyModel {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.model
}

// Err says why the pointer's model is not the one in use, nil if it is.
func (l *ModelLoader) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Run follows the pointer until ctx ends; then it returns nil. Other errors are of the store, before the pointer was seen.
func (l *ModelLoader) Run(ctx context.Context) error {
	stop, err := l.store.Watch(ctx, l.pool, func(p streams.ModelPointer) {
		for { // an older one that was not taken yet gives way
			select {
			case l.points <- p:
				return
			default:
			}
			select {
			case <-l.points:
			default:
			}
		}
	})
	if ctx.Err() != nil {
		if err == nil {
			stop()
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer stop()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var pointer streams.ModelPointer
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-l.points:
			if p.Revision < pointer.Revision { // a reconnection shows again what was there
				continue
			}
			pointer = p
		case <-l.changed:
		case <-timer.C:
		}
		timer.Stop()
		err := l.load(ctx, pointer)
		if ctx.Err() != nil {
			return nil
		}
		l.say(pointer, err)
		if err != nil && !errors.Is(err, errEngineUnknown) && !errors.Is(err, artifact.ErrIncompatible) {
			timer.Reset(l.retry)
		}
	}
}

// errEngineUnknown says that no worker has told its engine yet.
var errEngineUnknown = errors.New("ingress: the pool's engine is not known yet")

// load uses the pointer's model, or says why not.
func (l *ModelLoader) load(ctx context.Context, p streams.ModelPointer) error {
	l.mu.Lock()
	fingerprint, now := l.fingerprint, l.model
	l.mu.Unlock()
	if now.Artifact != nil && now.Artifact.Header.Compatible(fingerprint, feature.Table()) != nil {
		l.set(LatencyModel{}) // its bounds are of another engine
		now = LatencyModel{}
	}
	if p.Artifact == now.Digest {
		return nil
	}
	if p.Artifact == "" {
		l.set(LatencyModel{})
		return nil
	}
	if fingerprint == "" {
		return errEngineUnknown
	}
	file, err := l.store.Get(ctx, p.Artifact)
	if err != nil {
		return err
	}
	a, err := artifact.Decode(file)
	if err != nil {
		return err
	}
	if got := artifact.Digest(file); got != p.Artifact {
		return fmt.Errorf("%w: the file is %s", artifact.ErrHash, got)
	}
	if err := a.Header.Compatible(fingerprint, feature.Table()); err != nil {
		return err
	}
	l.set(LatencyModel{Artifact: a, Digest: p.Artifact})
	return nil
}

func (l *ModelLoader) set(m LatencyModel) {
	l.mu.Lock()
	l.model = m
	l.mu.Unlock()
	l.log.Info("model in use", "artifact", m.Digest)
	l.use(m)
}

// say notes what became of a pointer.
func (l *ModelLoader) say(p streams.ModelPointer, err error) {
	l.mu.Lock()
	again := err != nil && l.err != nil && err.Error() == l.err.Error()
	l.err = err
	in := l.model.Digest
	l.mu.Unlock()
	switch {
	case err == nil || again:
	case errors.Is(err, errEngineUnknown):
		l.log.Debug("model waits for a worker that tells its engine", "artifact", p.Artifact)
	default:
		l.log.Error("model not used", "artifact", p.Artifact, "in_use", in, "error", err)
	}
}
