package ingress

import (
	"context"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// onEngine takes an engine's state from the subscription, and follows the model of a pool that has engines. It never waits for the store.
func (s *Server) onEngine(e *schema.EngineState) {
	if err := s.desk.running(e, s.since()); err != nil {
		s.log.Error("nothing is predicted of an engine", "worker", e.Worker, "error", err)
	}
	if e.Settings == nil {
		return
	}
	l := s.loaders[e.Pool] // the subscription's goroutine owns them
	if l == nil {
		pool := e.Pool
		l = NewModelLoader(&lateStore{client: s.client}, pool, func(m LatencyModel) {
			if err := s.desk.model(pool, m, s.since()); err != nil {
				s.log.Error("model not used", "pool", pool, "artifact", m.Digest, "error", err)
			}
		}, s.log)
		s.loaders[pool] = l
		s.background.Go(func() { s.follow(l) })
	}
	l.Engine(s.desk.fingerprint(e.Pool, s.since()))
}

// follow runs a loader until the server ends, through times without a store.
func (s *Server) follow(l *ModelLoader) {
	for {
		err := l.Run(s.stopped)
		if err == nil {
			return
		}
		s.log.Warn("models are not followed for now", "error", err)
		t := time.NewTimer(modelRetry)
		select {
		case <-s.stopped.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// lateStore is the store of models, opened when it is first asked for.
type lateStore struct {
	client *streams.Client

	mu    sync.Mutex
	store *streams.ModelStore
}

func (o *lateStore) open(ctx context.Context) (*streams.ModelStore, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.store == nil {
		store, err := o.client.Models(ctx)
		if err != nil {
			return nil, err
		}
		o.store = store
	}
	return o.store, nil
}

// Watch implements ModelStore.
func (o *lateStore) Watch(ctx context.Context, pool string, handle func(streams.ModelPointer)) (func(), error) {
	store, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	return store.Watch(ctx, pool, handle)
}

// Get implements ModelStore.
func (o *lateStore) Get(ctx context.Context, digest string) ([]byte, error) {
	store, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	return store.Get(ctx, digest)
}
