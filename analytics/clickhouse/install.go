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
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

var (
	// ErrChecksum is returned when a downloaded file is not the published one.
	ErrChecksum = errors.New("clickhouse: checksum mismatch")
	// ErrInstall is wrapped by the other errors of Install.
	ErrInstall = errors.New("clickhouse: install")
)

// Stage is a step of [Install].
type Stage string

// The stages, in order. StagePresent is the only one when nothing is to be done.
const (
	StagePresent  Stage = "present"
	StageDownload Stage = "download"
	StageVerify   Stage = "verify"
	StageUnpack   Stage = "unpack"
	StageDone     Stage = "done"
)

// Progress tells how far an installation has come.
type Progress struct {
	Stage Stage
	// Bytes done and in all, of this stage; TotalBytes is 0 where unknown.
	Bytes, TotalBytes int64
}

// Install fetches the embedded engine into the user's cache directory and returns
// the library's path. It needs npm, about 1 GB of disk while it runs and 566 MB
// after. It does nothing if the library is there, and waits for another installer
// if one is at work. progress may be nil; it is called from this goroutine.
//
// Errors wrap ErrPlatform, ErrChecksum or ErrInstall.
func Install(ctx context.Context, progress func(Progress)) (string, error) {
	r, err := currentRelease()
	if err != nil {
		return "", err
	}
	dir, err := libraryDir()
	if err != nil {
		return "", err
	}
	in := installer{release: r, dir: dir, npm: "npm", progress: progress}
	return in.run(ctx)
}

type installer struct {
	release
	dir      string
	npm      string
	progress func(Progress)
}

func (in *installer) report(s Stage, done, total int64) {
	if in.progress != nil {
		in.progress(Progress{Stage: s, Bytes: done, TotalBytes: total})
	}
}

// present reports whether the final file exists with the right size.
func (in *installer) present(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == in.libraryBytes
}

func (in *installer) run(ctx context.Context) (string, error) {
	final := filepath.Join(in.dir, libraryName)
	if in.present(final) {
		in.report(StagePresent, in.libraryBytes, in.libraryBytes)
		return final, nil
	}
	if err := os.MkdirAll(in.dir, 0o755); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInstall, err)
	}
	lock := flock.New(filepath.Join(in.dir, "install.lock"))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", fmt.Errorf("%w: waiting for another installer: %w", ErrInstall, err)
	}
	defer func() { _ = lock.Close() }()
	if in.present(final) { // the other installer's work
		in.report(StagePresent, in.libraryBytes, in.libraryBytes)
		return final, nil
	}

	// What a killed installer left is removed under the lock, where nobody uses it.
	const scratch = "unfinished-"
	stale, err := filepath.Glob(filepath.Join(in.dir, scratch+"*"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInstall, err)
	}
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("%w: %w", ErrInstall, err)
		}
	}
	tmp, err := os.MkdirTemp(in.dir, scratch)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInstall, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()

	archive, err := in.download(ctx, tmp)
	if err != nil {
		return "", err
	}
	if err := in.verify(ctx, archive); err != nil {
		return "", err
	}
	library, err := in.unpack(ctx, archive, tmp)
	if err != nil {
		return "", err
	}
	if err := os.Rename(library, final); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInstall, err)
	}
	if err := syncDir(in.dir); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInstall, err)
	}
	in.report(StageDone, in.libraryBytes, in.libraryBytes)
	return final, nil
}

// download has npm fetch the package, so that the user's registry and proxy
// settings apply. npm's own cache is pointed into tmp: 178 MB would stay behind.
func (in *installer) download(ctx context.Context, tmp string) (string, error) {
	in.report(StageDownload, 0, 0)
	npm, err := exec.LookPath(in.npm)
	if err != nil {
		return "", fmt.Errorf("%w: npm is needed to fetch %s@%s; install Node.js: %w", ErrInstall, in.pkg, in.version, err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "pack", in.pkg+"@"+in.version, "--pack-destination", tmp,
		"--ignore-scripts", "--loglevel=error", "--cache", filepath.Join(tmp, "npm"))
	cmd.Dir = tmp
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%w: npm pack %s@%s: %w: %s", ErrInstall, in.pkg, in.version, err, bytes.TrimSpace(stderr.Bytes()))
	}
	found, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%w: npm pack %s@%s left %d archives, want 1", ErrInstall, in.pkg, in.version, len(found))
	}
	return found[0], nil
}

func (in *installer) verify(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInstall, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInstall, err)
	}
	sum := sha256.New()
	if err := in.copy(ctx, StageVerify, sum, f, info.Size()); err != nil {
		return err
	}
	return compareDigest(archive, sum.Sum(nil), in.archiveSHA256)
}

// unpack writes the library of the archive into dir, synced, and compares it.
func (in *installer) unpack(ctx context.Context, archive, dir string) (string, error) {
	f, err := os.Open(archive)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrInstall, err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrInstall, archive, err)
	}
	files := tar.NewReader(zipped)
	for {
		header, err := files.Next()
		if err != nil { // io.EOF: the package has no such file
			return "", fmt.Errorf("%w: %s: looking for %s: %w", ErrInstall, archive, libraryName, err)
		}
		if header.Typeflag != tar.TypeReg || header.Name != "package/"+libraryName {
			continue
		}
		path := filepath.Join(dir, libraryName)
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrInstall, err)
		}
		defer out.Close()
		sum := sha256.New()
		if err := in.copy(ctx, StageUnpack, io.MultiWriter(out, sum), files, header.Size); err != nil {
			return "", err
		}
		if err := compareDigest(path, sum.Sum(nil), in.librarySHA256); err != nil {
			return "", err
		}
		if err := out.Sync(); err != nil {
			return "", fmt.Errorf("%w: %w", ErrInstall, err)
		}
		return path, nil
	}
}

// copy copies total bytes with progress, and stops when ctx ends.
func (in *installer) copy(ctx context.Context, stage Stage, dst io.Writer, src io.Reader, total int64) error {
	const step = 8 << 20
	var done int64
	for {
		in.report(stage, done, total)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInstall, stage, err)
		}
		n, err := io.CopyN(dst, src, step)
		done += n
		switch {
		case errors.Is(err, io.EOF) && done == total:
			in.report(stage, done, total)
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: %s: %d of %d bytes: %w", ErrInstall, stage, done, total, io.ErrUnexpectedEOF)
		case err != nil:
			return fmt.Errorf("%w: %s: %w", ErrInstall, stage, err)
		}
	}
}

func compareDigest(path string, got []byte, want string) error {
	if hex.EncodeToString(got) != want {
		return fmt.Errorf("%w: %s has sha256 %x, want %s", ErrChecksum, filepath.Base(path), got, want)
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
