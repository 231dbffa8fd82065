package clickhouse

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// tail keeps the last bytes that the child wrote to its standard error, and logs
// each full line. The child's output is the only place where the engine says why it
// ended.
type tail struct {
	logger *slog.Logger

	mu   sync.Mutex
	last []byte // at most tailBytes
	line []byte // since the last newline, at most tailBytes
}

const tailBytes = 4 << 10

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = keep(append(t.last, p...))
	t.line = append(t.line, p...)
	for {
		line, rest, found := bytes.Cut(t.line, []byte("\n"))
		if !found {
			break
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			t.logger.LogAttrs(context.Background(), slog.LevelDebug, "clickhouse engine output", slog.String("line", string(line)))
		}
		t.line = rest
	}
	t.line = keep(t.line)
	return len(p), nil
}

// String returns what was kept, trimmed; "no output" if nothing was written.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.last)); s != "" {
		return s
	}
	return "no output"
}

func keep(b []byte) []byte {
	if len(b) <= tailBytes {
		return b
	}
	return append([]byte(nil), b[len(b)-tailBytes:]...)
}
