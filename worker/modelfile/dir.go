package modelfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// CacheDir is the folder of models: override if that is not "", otherwise cadence/models in the user's cache folder. It need not exist.
func CacheDir(override string) (string, error) {
	if override != "" {
		return filepath.Abs(override)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("modelfile: no cache folder, name one: %w", err)
	}
	return filepath.Join(base, "cadence", "models"), nil
}

// makeDir is CacheDir, created when it is missing.
func makeDir(override string) (string, error) {
	dir, err := CacheDir(override)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("modelfile: %w", err)
	}
	return dir, nil
}

// Entry is one model in the cache folder.
type Entry struct {
	Name      string    `json:"name"` // what Find accepts
	Path      string    `json:"path"`
	SizeBytes int64     `json:"size_bytes"`
	Modified  time.Time `json:"modified"`
}

// List gives the complete models in the cache folder, by name. A folder that does not exist has none.
func List(dir string) ([]Entry, error) {
	dir, err := CacheDir(dir)
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	var entries []Entry
	for _, f := range files {
		name, isModel := strings.CutSuffix(f.Name(), extension)
		if !isModel || strings.HasPrefix(name, ".") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, f.Name())) // follows a link to a model elsewhere
		if err != nil || !info.Mode().IsRegular() {
			continue // gone, or no file
		}
		entries = append(entries, Entry{Name: name, Path: filepath.Join(dir, f.Name()), SizeBytes: info.Size(), Modified: info.ModTime()})
	}
	return entries, nil
}

const extension = ".gguf"

// lockWait is how often a taken lock is tried again.
const lockWait = 50 * time.Millisecond

// lock waits until this caller alone, among goroutines and processes, works on a file of dir. The lock file stays: removing it would let a
// third process lock a new one while the second still holds the old.
func lock(ctx context.Context, dir, file string) (unlock func(), err error) {
	l := flock.New(filepath.Join(dir, "."+file+".lock"))
	if _, err := l.TryLockContext(ctx, lockWait); err != nil {
		return nil, fmt.Errorf("modelfile: wait for the lock on %s: %w", file, err)
	}
	return func() { _ = l.Unlock() }, nil
}

// syncDir makes renames in dir durable where the file system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // not every file system can sync a folder
	return d.Close()
}
