package ingress

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/conformal"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/gbm"
	"github.com/cadence-slo/cadence/predictor/length"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

// modelFile is a small model of an engine, another for each seed.
func modelFile(t testing.TB, seed uint64, fingerprint string, features []feature.Info) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	d := gbm.Data{Columns: make([][]float32, len(features))}
	for range 60 {
		label := 0.0
		for f := range d.Columns {
			x := rng.NormFloat64()
			d.Columns[f] = append(d.Columns[f], float32(x))
			label += x
		}
		d.Labels = append(d.Labels, label)
	}
	params := gbm.DefaultParams(0.5)
	params.Rounds, params.Leaves = 2, 3
	for _, f := range features {
		params.Monotone = append(params.Monotone, f.Sign)
	}
	m, _, err := gbm.Train(d, gbm.Data{}, params, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	arm, err := conformal.NewSFOGD(0.1, 1, conformal.DefaultSFOGD(0.1), 8, nil)
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC)
	a := &artifact.Artifact{Model: m, Lengths: length.New(1, 0).State(), Header: artifact.Header{Created: day, Code: "test", Backend: fingerprint, Profile: p,
		Features: features, From: day, To: day}}
	a.Calibration.Supported.All, a.Calibration.Physics = arm.Export(), arm.Export()
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loading is a loader that runs on an embedded server.
type loading struct {
	*ModelLoader
	client *streams.Client
	store  *streams.ModelStore
	used   chan LatencyModel
}

func load(t *testing.T) *loading {
	t.Helper()
	c := streamstest.Start(t).Client(t)
	store, err := c.Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &loading{client: c, store: store, used: make(chan LatencyModel, 16)}
	l.ModelLoader = NewModelLoader(store, "p", func(m LatencyModel) { l.used <- m }, slog.New(slog.DiscardHandler))
	l.retry = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

// publish points the pool at a file.
func (l *loading) publish(t *testing.T, file []byte) string {
	t.Helper()
	digest := ""
	if file != nil {
		var err error
		if digest, err = l.store.Put(t.Context(), file); err != nil {
			t.Fatal(err)
		}
	}
	now, err := l.store.Current(t.Context(), "p")
	if err != nil && !errors.Is(err, streams.ErrNoModel) {
		t.Fatal(err)
	}
	if _, err := l.store.Point(t.Context(), now.Revision, streams.ModelPointer{Pool: "p", Artifact: digest, Source: "test", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	return digest
}

func (l *loading) want(t *testing.T, digest string) {
	t.Helper()
	m := streamstest.Receive(t, l.used)
	if m.Digest != digest || (m.Artifact == nil) != (digest == "") {
		t.Fatalf("in use is %q, want %q", m.Digest, digest)
	}
	if now := l.Model(); now.Digest != digest {
		t.Fatalf("Model is %q, want %q", now.Digest, digest)
	}
}

// wantErr waits until the loader says so.
func (l *loading) wantErr(t *testing.T, want error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !errors.Is(l.Err(), want) || want == nil && l.Err() != nil; {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("says %v, want %v", l.Err(), want)
		}
	}
}

// A model is used once the engine is known, and is the engine's; a bad one of any kind leaves the last good one; a rollback is a pointer like
// any other, to none too.
func TestModelLoader(t *testing.T) {
	l := load(t)
	good := modelFile(t, 1, "engine/1", feature.Table())
	first := l.publish(t, good)
	l.wantErr(t, errEngineUnknown)
	if m := l.Model(); m.Artifact != nil {
		t.Fatal("a model of an engine that is not known")
	}
	l.Engine("engine/1")
	l.want(t, first)
	l.wantErr(t, nil)
	l.Engine("engine/1")

	others := feature.Table()
	others[3].Sign = -others[3].Sign + 1
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"another engine":   {modelFile(t, 2, "engine/2", feature.Table()), artifact.ErrIncompatible},
		"other features":   {modelFile(t, 3, "engine/1", others), artifact.ErrIncompatible},
		"fewer features":   {modelFile(t, 4, "engine/1", feature.Table()[:5]), artifact.ErrIncompatible},
		"not a model":      {[]byte("not a model, but long enough to be one by its length alone, if nobody looked inside"), artifact.ErrFormat},
		"a model that was": {append([]byte(nil), good[:len(good)-1]...), artifact.ErrHash},
	} {
		l.publish(t, c.file)
		l.wantErr(t, c.want)
		if m := l.Model(); m.Digest != first {
			t.Fatalf("%s: in use is %q", name, m.Digest)
		}
		l.publish(t, good) // nothing changes
		l.wantErr(t, nil)
	}

	second := l.publish(t, modelFile(t, 5, "engine/1", feature.Table()))
	l.want(t, second)
	l.publish(t, good)
	l.want(t, first)
	l.publish(t, nil)
	l.want(t, "")
	l.publish(t, good)
	l.want(t, first)

	// The engine becomes another: the model goes, and comes back with its engine.
	l.Engine("engine/3")
	l.want(t, "")
	l.wantErr(t, artifact.ErrIncompatible)
	l.Engine("engine/1")
	l.want(t, first)
	l.wantErr(t, nil)
	select {
	case m := <-l.used:
		t.Errorf("once more: %q", m.Digest)
	default:
	}
}

// A file that is damaged in the store is not used, and is once it was mended, without another pointer.
func TestModelLoaderTriesAgain(t *testing.T) {
	l := load(t)
	l.Engine("engine/1")
	first := l.publish(t, modelFile(t, 1, "engine/1", feature.Table()))
	l.want(t, first)
	next := modelFile(t, 2, "engine/1", feature.Table())
	files, err := l.client.JetStream().ObjectStore(t.Context(), streams.Models)
	if err != nil {
		t.Fatal(err)
	}
	digest := artifact.Digest(next)
	kv, err := l.client.JetStream().KeyValue(t.Context(), streams.Models)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody points at what is not there, past the store's own check.
	if _, err := kv.Put(t.Context(), "models.p", []byte(`{"artifact":"`+digest+`"}`)); err != nil {
		t.Fatal(err)
	}
	l.wantErr(t, streams.ErrNoModel)
	if _, err := files.PutBytes(t.Context(), digest, []byte("other bytes")); err != nil {
		t.Fatal(err)
	}
	l.wantErr(t, streams.ErrModelDamaged)
	if m := l.Model(); m.Digest != first {
		t.Errorf("in use is %q", m.Digest)
	}
	if _, err := l.store.Put(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	l.want(t, digest)
	l.wantErr(t, nil)
}
