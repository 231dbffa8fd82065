package streams

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go/jetstream"
)

// Models is the name of the two buckets of models: the object store with their files, by SHA-256, and the key-value store with
// the pointer of each pool to its present one.
const Models = "MODELS"

// ModelHistory is how many pointers of a pool are kept, the present one included.
const ModelHistory = 20

// maxModel is the largest model file that is stored or read, in bytes.
const maxModel = 64 << 20

var (
	// ErrNoModel is returned where a pool has never had a model, and for a digest that the store does not have.
	ErrNoModel = errors.New("streams: no such model")
	// ErrModelDamaged is returned for a stored file that is not what its name says.
	ErrModelDamaged = errors.New("streams: model is damaged")
	// ErrModelMoved is returned by Point when the pool's pointer is not where the caller saw it.
	ErrModelMoved = errors.New("streams: the pool has another model by now")
)

// ModelPointer says which model is a pool's.
type ModelPointer struct {
	Pool string `json:"-"`
	// Artifact is the SHA-256 of the file, in hexadecimal; empty: none, the physics alone.
	Artifact string `json:"artifact"`
	Source   string `json:"source"` // who moved it
	Reason   string `json:"reason"`
	// Revision is the store's, > 0, larger than that of every earlier pointer; 0: the pool has never had one.
	Revision uint64    `json:"-"`
	At       time.Time `json:"-"` // the store's, UTC
}

// ModelStore keeps models. It is safe for concurrent use.
type ModelStore struct {
	c        *Client
	files    jetstream.ObjectStore
	pointers jetstream.KeyValue
}

// Models opens the store, and makes its buckets if they are missing; it leaves those that are there as they are. It returns
// ErrUnavailable.
func (c *Client) Models(ctx context.Context) (*ModelStore, error) {
	files, err := c.js.ObjectStore(ctx, Models)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		files, err = c.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: Models, Description: "models of latencies, by SHA-256",
			Storage: jetstream.FileStorage, Replicas: c.cfg.Replicas})
		if errors.Is(err, jetstream.ErrBucketExists) { // another service was faster
			files, err = c.js.ObjectStore(ctx, Models)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("streams: models: %w", publishError(err))
	}
	pointers, err := c.js.KeyValue(ctx, Models)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		pointers, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: Models, Description: "which model is a pool's",
			History: ModelHistory, Storage: jetstream.FileStorage, Replicas: c.cfg.Replicas})
		if errors.Is(err, jetstream.ErrBucketExists) {
			pointers, err = c.js.KeyValue(ctx, Models)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("streams: model pointers: %w", publishError(err))
	}
	return &ModelStore{c: c, files: files, pointers: pointers}, nil
}

// Put stores a file, whole before it can be found, and returns its name. A file that is there, undamaged, is left alone; a damaged one
// is replaced. It returns ErrTooLarge and ErrUnavailable.
func (s *ModelStore) Put(ctx context.Context, file []byte) (digest string, err error) {
	if len(file) > maxModel {
		return "", fmt.Errorf("%w: a model of %d bytes, allowed: %d", ErrTooLarge, len(file), maxModel)
	}
	digest = sha256Hex(file)
	if _, err := s.Get(ctx, digest); err == nil {
		return digest, nil
	}
	if _, err := s.files.Put(ctx, jetstream.ObjectMeta{Name: digest}, bytes.NewReader(file)); err != nil {
		return "", fmt.Errorf("streams: storing model %s: %w", digest, publishError(err))
	}
	return digest, nil
}

// Get returns a file, verified, which the caller owns. It returns ErrNoModel, ErrModelDamaged or ErrUnavailable.
func (s *ModelStore) Get(ctx context.Context, digest string) ([]byte, error) {
	info, err := s.files.GetInfo(ctx, digest)
	if errors.Is(err, jetstream.ErrObjectNotFound) || errors.Is(err, jetstream.ErrNameRequired) {
		return nil, fmt.Errorf("%w: %s", ErrNoModel, digest)
	}
	if err != nil {
		return nil, fmt.Errorf("streams: model %s: %w", digest, publishError(err))
	}
	if info.Size > maxModel {
		return nil, fmt.Errorf("%w: %s has %d bytes, allowed: %d", ErrModelDamaged, digest, info.Size, maxModel)
	}
	// Chunks that are gone would be waited for.
	ctx, cancel := context.WithTimeout(ctx, s.c.cfg.Timeout)
	defer cancel()
	file, err := s.files.GetBytes(ctx, digest)
	switch {
	case errors.Is(err, jetstream.ErrDigestMismatch):
		return nil, fmt.Errorf("%w: %s: %w", ErrModelDamaged, digest, err)
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return nil, fmt.Errorf("%w: %s", ErrNoModel, digest)
	case err != nil:
		return nil, fmt.Errorf("streams: model %s: %w", digest, publishError(err))
	}
	if got := sha256Hex(file); got != digest {
		return nil, fmt.Errorf("%w: the file of %s is %s", ErrModelDamaged, digest, got)
	}
	return file, nil
}

// Current returns a pool's pointer, ErrNoModel if there was never one, or ErrUnavailable.
func (s *ModelStore) Current(ctx context.Context, pool string) (ModelPointer, error) {
	all, err := s.History(ctx, pool)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: pool %s", ErrNoModel, pool)
	}
	if err != nil {
		return ModelPointer{Pool: pool}, err
	}
	return all[0], nil
}

// Point makes p its pool's pointer if the present one has the given revision, 0 for none, and returns it with its own. The file
// must be in the store: ErrNoModel, ErrModelDamaged. It returns ErrModelMoved if another was faster, ErrInvalid (of schema) for a
// pool that has no valid name, and ErrUnavailable, after which the pointer may have moved or not.
func (s *ModelStore) Point(ctx context.Context, after uint64, p ModelPointer) (ModelPointer, error) {
	if !schema.ValidName(p.Pool) {
		return p, fmt.Errorf("%w model pointer: pool is %q", schema.ErrInvalid, p.Pool)
	}
	if p.Artifact != "" {
		if _, err := s.Get(ctx, p.Artifact); err != nil {
			return p, err
		}
	}
	body, err := json.Marshal(&p)
	if err != nil {
		return p, fmt.Errorf("streams: model pointer: %w", err)
	}
	p.Revision, err = s.pointers.Update(ctx, modelKey(p.Pool), body, after)
	if err != nil {
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return p, fmt.Errorf("%w: pool %s", ErrModelMoved, p.Pool)
		}
		return p, fmt.Errorf("streams: model of pool %s: %w", p.Pool, publishError(err))
	}
	return p, nil
}

// History returns a pool's pointers, the present one first, at most ModelHistory; none if there was never one. It returns
// ErrUnavailable.
func (s *ModelStore) History(ctx context.Context, pool string) ([]ModelPointer, error) {
	entries, err := s.pointers.History(ctx, modelKey(pool))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("streams: models of pool %s: %w", pool, publishError(err))
	}
	all := make([]ModelPointer, 0, len(entries))
	for i := len(entries) - 1; i >= 0; i-- {
		p, err := modelPointer(entries[i])
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Watch calls handle with a pool's pointer, if there is one, and with every later one, in order, until stop is called, which
// returns once handle has. It survives reconnects; of pointers that came and went meanwhile it may show the last one only.
func (s *ModelStore) Watch(ctx context.Context, pool string, handle func(ModelPointer)) (stop func(), err error) {
	w, err := s.pointers.Watch(ctx, modelKey(pool))
	if err != nil {
		return nil, fmt.Errorf("streams: watching the model of pool %s: %w", pool, publishError(err))
	}
	var done sync.WaitGroup
	quit := make(chan struct{})
	done.Go(func() {
		for {
			select {
			case <-quit:
				return
			case e, ok := <-w.Updates():
				if !ok {
					return
				}
				if e == nil { // what there was at the beginning has been shown
					continue
				}
				p, err := modelPointer(e)
				if err != nil {
					s.c.log.Error("model pointer passed over", "pool", pool, "error", err)
					continue
				}
				handle(p)
			}
		}
	})
	var once sync.Once
	return func() {
		once.Do(func() {
			close(quit)
			if err := w.Stop(); err != nil {
				s.c.log.Debug("watching models", "error", err)
			}
		})
		done.Wait()
	}, nil
}

// Prune deletes files that no pointer of any pool's history names and that were stored before a time: what is newer may be on its way
// to a pointer. It returns how many it deleted.
func (s *ModelStore) Prune(ctx context.Context, before time.Time) (int, error) {
	files, err := s.files.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("streams: models: %w", publishError(err))
	}
	// Files first: one that is named meanwhile is in the histories that are read after.
	keys, err := s.pointers.ListKeys(ctx)
	if err != nil {
		return 0, fmt.Errorf("streams: models: %w", publishError(err))
	}
	named := map[string]bool{}
	var pools []string
	for k := range keys.Keys() {
		pools = append(pools, strings.TrimPrefix(k, modelKey("")))
	}
	for _, pool := range pools {
		history, err := s.History(ctx, pool)
		if err != nil {
			return 0, err
		}
		for _, p := range history {
			named[p.Artifact] = true
		}
	}
	n := 0
	for _, f := range files {
		if named[f.Name] || !f.ModTime.Before(before) {
			continue
		}
		if err := s.files.Delete(ctx, f.Name); err != nil {
			return n, fmt.Errorf("streams: deleting model %s: %w", f.Name, publishError(err))
		}
		n++
	}
	return n, nil
}

func modelKey(pool string) string { return "models." + pool }

func modelPointer(e jetstream.KeyValueEntry) (ModelPointer, error) {
	p := ModelPointer{Pool: strings.TrimPrefix(e.Key(), modelKey("")), Revision: e.Revision(), At: e.Created().UTC()}
	if e.Operation() != jetstream.KeyValuePut { // somebody deleted it by hand
		return p, nil
	}
	if err := json.Unmarshal(e.Value(), &p); err != nil {
		return p, fmt.Errorf("%w: pointer of pool %s: %w", ErrModelDamaged, p.Pool, err)
	}
	return p, nil
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
