package clickhouse

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// packager is a command that behaves as `npm pack`: it appends a line to calls and
// copies an archive into the destination.
type packager struct{ npm, calls string }

func newPackager(t *testing.T, archive []byte, status int) packager {
	t.Helper()
	dir := t.TempDir()
	p := packager{npm: filepath.Join(dir, "npm"), calls: filepath.Join(dir, "calls")}
	source := filepath.Join(dir, "source")
	if err := os.WriteFile(source, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >> %s\n[ %d = 0 ] || { echo E404 no such package >&2; exit %d; }\ncp %s \"$4/lib.tgz\"\n", p.calls, status, status, source)
	if err := os.WriteFile(p.npm, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p packager) count(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(p.calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func archiveOf(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"package/package.json", []byte("{}")}, {name, content}} {
		if err := w.WriteHeader(&tar.Header{Name: file.name, Size: int64(len(file.content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(file.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func testInstaller(t *testing.T, p packager, archive, library []byte) *installer {
	t.Helper()
	hash := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	return &installer{
		release: release{
			pkg: "@x/lib", version: "1", archiveSHA256: hash(archive), librarySHA256: hash(library), libraryBytes: int64(len(library)),
		},
		dir: filepath.Join(t.TempDir(), "cache", "1"), npm: p.npm,
	}
}

var libraryContent = bytes.Repeat([]byte("library "), 9<<17) // more than one step

func TestInstall(t *testing.T) {
	archive := archiveOf(t, "package/libchdb.so", libraryContent)
	p := newPackager(t, archive, 0)
	in := testInstaller(t, p, archive, libraryContent)
	leftover := filepath.Join(in.dir, "unfinished-1")
	if err := os.MkdirAll(leftover, 0o755); err != nil {
		t.Fatal(err)
	}
	var stages []Stage
	in.progress = func(p Progress) {
		if len(stages) == 0 || stages[len(stages)-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
		if p.Bytes > p.TotalBytes {
			t.Errorf("%+v", p)
		}
	}
	path, err := in.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, libraryContent) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got := fmt.Sprint(stages); got != "[download verify unpack done]" {
		t.Errorf("stages %s", got)
	}
	if entries, err := os.ReadDir(in.dir); err != nil || len(entries) != 2 { // library, lock
		t.Errorf("left %v, %v", entries, err)
	}
	if again, err := in.run(t.Context()); err != nil || again != path || p.count(t) != 1 {
		t.Errorf("second run: %s, %v, %d downloads", again, err, p.count(t))
	}
}

func TestInstallersShareOneDownload(t *testing.T) {
	archive := archiveOf(t, "package/libchdb.so", libraryContent)
	p := newPackager(t, archive, 0)
	in := testInstaller(t, p, archive, libraryContent)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			other := *in
			if _, err := other.run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := p.count(t); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

func TestInstallRefuses(t *testing.T) {
	good := archiveOf(t, "package/libchdb.so", libraryContent)
	other := archiveOf(t, "package/libchdb.so", []byte("other"))
	elsewhere := archiveOf(t, "package/lib/libchdb.so", libraryContent)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		archive []byte
		status  int
		change  func(*installer)
		ctx     context.Context
		want    error
		text    string
	}{
		"another archive":   {archive: other, want: ErrChecksum, text: "lib.tgz has sha256"},
		"truncated archive": {archive: good[:len(good)-1], want: ErrChecksum, text: "lib.tgz"},
		"another library": {archive: good, want: ErrChecksum, text: "libchdb.so has sha256",
			change: func(in *installer) { in.librarySHA256 = strings.Repeat("0", 64) }},
		"no library": {archive: elsewhere, want: ErrInstall, text: "looking for libchdb.so",
			change: func(in *installer) {
				s := sha256.Sum256(elsewhere)
				in.archiveSHA256 = hex.EncodeToString(s[:])
			}},
		"npm fails": {archive: good, status: 1, want: ErrInstall, text: "E404 no such package"},
		"no npm":    {archive: good, want: ErrInstall, text: "npm is needed", change: func(in *installer) { in.npm = "/nonexistent/npm" }},
		"cancelled": {archive: good, ctx: cancelled, want: context.Canceled, text: "waiting"},
	} {
		t.Run(name, func(t *testing.T) {
			in := testInstaller(t, newPackager(t, test.archive, test.status), good, libraryContent)
			if test.change != nil {
				test.change(in)
			}
			ctx := test.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			_, err := in.run(ctx)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("err = %v", err)
			}
			entries, err := os.ReadDir(in.dir)
			if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "install.lock" {
				t.Errorf("left %v, %v", entries, err)
			}
		})
	}
}

func TestFindLibrary(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := FindLibrary()
	if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("err = %v", err)
	}
	dir, err := libraryDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, libraryName), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FindLibrary(); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "has 4 bytes") {
		t.Errorf("err = %v", err)
	}
	if _, err := Start(t.Context(), testOptions(t)); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("Start: %v", err)
	}
}
