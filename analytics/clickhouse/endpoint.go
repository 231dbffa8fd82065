package clickhouse

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse is returned when another instance has the data directory.
	ErrInUse = errors.New("clickhouse: data directory is in use by another instance")
	// ErrNotRunning is returned by Discover when no instance has the directory.
	ErrNotRunning = errors.New("clickhouse: no embedded engine is running")
)

// credentials are drawn once per Start or Supervise; restarts keep them.
type credentials struct{ owner, reader string }

func newCredentials() credentials {
	return credentials{owner: rand.Text(), reader: rand.Text()}
}

// dsn renders the address of an HTTP interface for clickhouse-go.
func dsn(addr, user, password string) string {
	u := url.URL{Scheme: "http", Host: addr, Path: "/" + Database, User: url.UserPassword(user, password)}
	return u.String()
}

const (
	endpointName = "endpoint"
	lockName     = "instance.lock"
)

// Discover returns a read-only DSN of the engine that runs in data directory path,
// for another process of the same user. Errors wrap ErrNotRunning if none runs.
func Discover(path string) (string, error) {
	switch free, err := lockFree(filepath.Join(path, lockName)); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w in %s", ErrNotRunning, path)
	case err != nil:
		return "", fmt.Errorf("clickhouse: %w", err)
	case free:
		return "", fmt.Errorf("%w in %s", ErrNotRunning, path)
	}
	text, err := os.ReadFile(filepath.Join(path, endpointName))
	switch {
	case errors.Is(err, fs.ErrNotExist): // starting or stopping
		return "", fmt.Errorf("%w in %s yet", ErrNotRunning, path)
	case err != nil:
		return "", fmt.Errorf("clickhouse: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// writeEndpoint replaces the endpoint file in one step: a reader sees all or nothing.
func writeEndpoint(path, text string) error {
	tmp, err := os.CreateTemp(path, endpointName+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("clickhouse: endpoint: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if _, err := tmp.WriteString(text + "\n"); err != nil {
		_ = tmp.Close()
		return fmt.Errorf("clickhouse: endpoint: %w", err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("clickhouse: endpoint: %w", err)
	}
	if err := os.Rename(tmp.Name(), filepath.Join(path, endpointName)); err != nil {
		return fmt.Errorf("clickhouse: endpoint: %w", err)
	}
	return nil
}

// tryLock takes the directory's lock. The lock belongs to the open file description,
// so it is released when the last process that holds the descriptor has closed it;
// a package that unlocks explicitly would take it from the child.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrInUse, filepath.Dir(path))
		}
		return nil, fmt.Errorf("clickhouse: lock %s: %w", path, err)
	}
	return f, nil
}

// lockFree reports whether nobody holds the lock; it leaves it as it is.
func lockFree(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// lockWithin retries tryLock for wait, or until done is closed.
func lockWithin(path string, wait time.Duration, done <-chan struct{}) (*os.File, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		f, err := tryLock(path)
		if err == nil || !errors.Is(err, ErrInUse) {
			return f, err
		}
		select {
		case <-retry.C:
		case <-deadline.C:
			return nil, err
		case <-done:
			return nil, err
		}
	}
}
