package clickhouse

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ErrOptions is wrapped by every error of [Options.Validate].
var ErrOptions = errors.New("clickhouse: invalid option")

// Options configure the embedded engine. The zero value is not valid: use
// [DefaultOptions].
type Options struct {
	// Library is the path of libchdb.so; empty means [FindLibrary].
	Library string
	// Path is the data directory; it is created with mode 0700 and made absolute.
	Path string
	// Port is the HTTP port on 127.0.0.1; 0 lets Start pick a free one.
	Port int
	// MemoryBytes bounds the engine's tracked memory; queries that would exceed it
	// fail instead of the machine. At least 512 MiB.
	MemoryBytes int64
	// LockWait is how long to wait for an earlier instance to leave Path, as after
	// a crash of its parent. 0 fails at once.
	LockWait time.Duration
	// Logger receives the engine's warnings. It must not be nil.
	Logger *slog.Logger
	// NativeTCP also opens the native protocol on a free port. For tests alone: a
	// failed handshake there aborts the engine.
	NativeTCP bool
}

// DefaultOptions returns the options for data directory path, with 2 GiB of memory.
func DefaultOptions(path string, logger *slog.Logger) Options {
	return Options{Path: path, MemoryBytes: 2 << 30, LockWait: 10 * time.Second, Logger: logger}
}

// Validate reports the first option out of range, naming it and what is allowed.
func (o Options) Validate() error {
	switch {
	case o.Path == "":
		return fmt.Errorf("%w: path is empty, want a directory", ErrOptions)
	case o.Port < 0 || o.Port > 65535:
		return fmt.Errorf("%w: port is %d, want 0 (any) to 65535", ErrOptions, o.Port)
	case o.MemoryBytes < 512<<20:
		return fmt.Errorf("%w: memory_bytes is %d, want at least %d", ErrOptions, o.MemoryBytes, 512<<20)
	case o.LockWait < 0:
		return fmt.Errorf("%w: lock_wait is %v, want 0 or more", ErrOptions, o.LockWait)
	case o.Logger == nil:
		return fmt.Errorf("%w: logger is nil", ErrOptions)
	}
	return nil
}
