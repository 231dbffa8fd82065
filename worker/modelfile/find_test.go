package modelfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cadence-slo/cadence/worker/gguf"
)

func TestFindSynth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "models")
	var made atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			path, err := Find(t.Context(), dir, "synth:tiny", func(done, total int64) {
				if done == total {
					made.Add(1)
				}
			})
			if err != nil || path != filepath.Join(dir, SynthFile("tiny", 1)) {
				t.Errorf("%s, %v", path, err)
			}
		})
	}
	group.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
	path := filepath.Join(dir, SynthFile("tiny", 1))
	head, err := gguf.InspectFile(path)
	if err != nil || head.Name != "synth-tiny-s1" {
		t.Fatalf("%+v, %v", head, err)
	}
	if err := os.Truncate(path, head.SizeBytes/2); err != nil { // what a failing disk leaves is made again
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), dir, "synth:tiny:1", nil); err != nil {
		t.Fatal(err)
	}
	if again, err := gguf.InspectFile(path); err != nil || again.SizeBytes != head.SizeBytes {
		t.Errorf("%+v, %v", again, err)
	}
	other, err := Find(t.Context(), dir, "synth:tiny:7", nil)
	if err != nil || other == path {
		t.Errorf("seed 7: %s, %v", other, err)
	}
	for _, name := range []string{"synth:", "synth:huge", "synth:tiny:x", "synth:tiny:-1", "synth:tiny:1:2", "synth:../tiny"} {
		if _, err := Find(t.Context(), dir, name, nil); !errors.Is(err, ErrBadSynth) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Find(ctx, dir, "synth:tiny:8", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestFind(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "own.bin")
	known := KnownModels()[0]
	for _, path := range []string{filepath.Join(dir, "a.gguf"), filepath.Join(dir, "b.gguf.part"), elsewhere} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.gguf"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "a.gguf", "a.gguf": "a.gguf", elsewhere: elsewhere, filepath.Join(dir, "a.gguf"): "a.gguf"} {
		if !filepath.IsAbs(want) {
			want = filepath.Join(dir, want)
		}
		if path, err := Find(t.Context(), dir, name, nil); err != nil || path != want {
			t.Errorf("%s: %s, %v", name, path, err)
		}
	}
	for name, says := range map[string]string{
		"": "no name", "b": "a; synthetic models are synth:tiny", "folder": "no file", "../" + filepath.Base(dir) + "/a": "no file", known.Name: "cadence model pull " + known.Name,
	} {
		if path, err := Find(t.Context(), dir, name, nil); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %s, %v, want %q", name, path, err, says)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, known.File), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if path, err := Find(t.Context(), dir, known.Name, nil); err != nil || path != filepath.Join(dir, known.File) {
		t.Errorf("%s: %s, %v", known.Name, path, err)
	}
	entries, err := List(dir)
	if err != nil || len(entries) != 2 || entries[0].Name != "a" || entries[0].SizeBytes != 1 || entries[1].Name != known.Name {
		t.Errorf("List: %+v, %v", entries, err)
	}
	if entries, err := List(filepath.Join(dir, "none")); err != nil || entries != nil {
		t.Errorf("List of a missing folder: %+v, %v", entries, err)
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	usual, err := CacheDir("")
	if err != nil || !strings.HasSuffix(usual, filepath.Join("cadence", "models")) || !filepath.IsAbs(usual) {
		t.Errorf("usual folder %s, %v", usual, err)
	}
	if dir, err := CacheDir("here"); err != nil || !filepath.IsAbs(dir) || filepath.Base(dir) != "here" {
		t.Errorf("override: %s, %v", dir, err)
	}
	t.Setenv("HOME", "")
	if _, err := CacheDir(""); err == nil {
		t.Error("no home folder: no error")
	}
}
