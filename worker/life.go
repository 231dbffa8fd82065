package worker

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// life is what the rest of the system knows as one worker. A process has another after it was fenced.
type life struct {
	id schema.WorkerID
	// key is that of its digests of cached prefixes.
	key uint64
	// over is set once this life is not to be heard any more.
	over atomic.Bool
}

// newLife returns a life with a fresh id that begins with name.
func newLife(name string) (*life, error) {
	var b [14]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("worker: reading randomness for an id: %w", err)
	}
	return &life{id: schema.WorkerID(name + "-" + hex.EncodeToString(b[:6])), key: binary.LittleEndian.Uint64(b[6:])}, nil
}

// pulse says when the worker was last heard. The heartbeat sets it; everyone who sends looks at it, so that a process
// that was frozen sends nothing more after it thaws.
type pulse struct {
	limit time.Duration
	last  atomic.Int64 // on the worker's clock
}

func (p *pulse) beat(now time.Duration)        { p.last.Store(int64(now)) }
func (p *pulse) silent(now time.Duration) bool { return now-time.Duration(p.last.Load()) > p.limit }
