package clickhouse

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Version is the engine release that this package installs and is tested with.
// Earlier packages of the library do not have the listener that Start needs.
const Version = "26.7.3-stable.1"

const libraryName = "libchdb.so"

var (
	// ErrNotInstalled is returned when the engine's library is not in the cache
	// directory.
	ErrNotInstalled = errors.New("clickhouse: embedded engine not installed; run `make deps` or `cadence deps`")
	// ErrPlatform is returned where no tested library exists.
	ErrPlatform = errors.New("clickhouse: no embedded engine for this platform; give the DSN of a ClickHouse 26.7 server instead")
)

// release is one published package of the library, with what it must hash to.
type release struct {
	pkg           string // npm name
	version       string
	archiveSHA256 string
	librarySHA256 string
	libraryBytes  int64
}

var releases = map[string]release{
	"linux/amd64": {
		pkg:           "@chdb/lib-linux-x64-gnu",
		version:       Version,
		archiveSHA256: "c0d32b129e988f2b9a9a31c9141aecf5e1e2453f9a079efc4d36ab8e3f92b2ad",
		librarySHA256: "36ad4e999882821ef13cf2d0f52c93f48e6ee1b4498b35a201c23ce4b8d15bf5",
		libraryBytes:  566330096,
	},
}

func currentRelease() (release, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	r, ok := releases[platform]
	if !ok {
		return release{}, fmt.Errorf("%w: %s", ErrPlatform, platform)
	}
	return r, nil
}

// libraryDir is the user's cache directory for this release of the engine.
func libraryDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("clickhouse: no cache directory: %w", err)
	}
	return filepath.Join(cache, "cadence", "clickhouse", Version), nil
}

// FindLibrary returns the path of the installed library, or an error that wraps
// ErrNotInstalled or ErrPlatform. It compares the size only: [Install] has compared
// the digest before it gave the file this name.
func FindLibrary() (string, error) {
	r, err := currentRelease()
	if err != nil {
		return "", err
	}
	dir, err := libraryDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, libraryName)
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w (looked for %s)", ErrNotInstalled, path)
	case err != nil:
		return "", err
	case info.Size() != r.libraryBytes:
		return "", fmt.Errorf("%w (%s has %d bytes, want %d)", ErrNotInstalled, path, info.Size(), r.libraryBytes)
	}
	return path, nil
}
