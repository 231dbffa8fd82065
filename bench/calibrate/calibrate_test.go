package calibrate

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/predictor/profile"
)

// The driver makes the steps that it is asked for, on an engine that checks every one of them.
func TestMeasure(t *testing.T) {
	o := DefaultOptions()
	o.Quick()
	e := DefaultEngineOptions()
	e.On = OnMock
	fast := *mustProfile(t)
	e.Profile = &fast
	dir := t.TempDir()
	last := int64(0)
	r, err := Run(t.Context(), e, o, "", "test", slog.New(slog.DiscardHandler), func(done, total int64) {
		if done < last || done > total {
			t.Errorf("%d of %d experiments after %d", done, total, last)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[[2]int]bool{{0, 1}: true, {0, 2}: true, {0, 4}: true, {0, 8}: true, {0, 16}: true, {32, 0}: true, {128, 0}: true, {512, 0}: true}
	for _, c := range r.Cells {
		delete(want, [2]int{c.Prefill, c.Decodes})
	}
	if len(want) > 0 {
		t.Errorf("nothing was measured of %v", want)
	}
	if r.Profile.Fit.HeldOut == 0 || r.Profile.Limits.MaxBatch != 32 || r.Profile.Limits.KVTokens != 16384 || r.Profile.Name != "mock-mock-1t" {
		t.Errorf("%+v", r.Profile)
	}
	if b, err := r.Profile.Encode(); err != nil {
		t.Error(err)
	} else if _, err := profile.Decode(b); err != nil {
		t.Error(err)
	}
	if err := r.Plot(filepath.Join(dir, "residuals.svg")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "residuals.svg")); err != nil || !strings.Contains(string(b), "<svg") {
		t.Errorf("%.100s, %v", b, err)
	}
	if err := r.Write(t.Output()); err != nil {
		t.Error(err)
	}
}

// mustProfile is an engine that is quick enough for a test, and slow enough to be measured.
func mustProfile(t *testing.T) *profile.Profile {
	t.Helper()
	p, err := profile.Open("mock")
	if err != nil {
		t.Fatal(err)
	}
	p.Cost = profile.Cost{Base: 1e6, PrefillToken: 2e4, ContextToken: 100, Decode: []profile.Point{{Batch: 1, Time: 2e5}, {Batch: 2, Time: 4e5}}}
	return p
}

func TestOptions(t *testing.T) {
	good := DefaultOptions()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(o *Options){
		"chunks":         func(o *Options) { o.Chunks = nil },
		"prefill-tokens": func(o *Options) { o.PrefillTokens = 1 },
		"batches":        func(o *Options) { o.Batches = []int{1, 8, 4} },
		"contexts":       func(o *Options) { o.Contexts = []int{0} },
		"deep-batch":     func(o *Options) { o.DeepBatch = 0 },
		"decode-steps":   func(o *Options) { o.DecodeSteps = 1 },
		"mixes":          func(o *Options) { o.Mixes = 0 },
		"mix-jobs":       func(o *Options) { o.MixJobs = 1 },
		"chunk-tokens":   func(o *Options) { o.ChunkTokens = 0 },
		"rounds":         func(o *Options) { o.Rounds = 0 },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key, change := range map[string]func(o *EngineOptions){
		"on":           func(o *EngineOptions) { o.On = "gpu" },
		"model":        func(o *EngineOptions) { o.Model = "" },
		"threads":      func(o *EngineOptions) { o.Threads = 0 },
		"kv-tokens":    func(o *EngineOptions) { o.KVTokens = 1 },
		"sequences":    func(o *EngineOptions) { o.Sequences = 257 },
		"engine-batch": func(o *EngineOptions) { o.EngineBatch = 0 },
		"max-batch":    func(o *EngineOptions) { o.MaxBatch = 65 },
	} {
		o := DefaultEngineOptions()
		change(&o)
		if err := o.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
