package streams

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// guardEvery is how often the store is looked at.
	guardEvery = 500 * time.Millisecond
	// guardRoom is how much of the disk must be free before a store that ran out of it is opened again.
	guardRoom = 64 << 20
)

// guard opens the streams again after the disk was full: the server never writes again to a file on which a write failed
// for that, until it is told to start JetStream again. What was acknowledged is on the disk.
func (s *Server) guard(dir string, log *slog.Logger) {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	told := false
	for {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
		if !s.full.Load() {
			told = false
			continue
		}
		if !told {
			log.Error("the disk is full: nothing can be stored until there is room", "dir", dir, "want_free_bytes", guardRoom)
			told = true
		}
		if free, ok := freeBytes(dir); !ok || free < guardRoom {
			continue
		}
		s.full.Store(false) // before the streams open: they may be full again at once
		if err := s.ns.DisableJetStream(); err != nil {
			log.Error("closing the streams", "error", err)
		}
		if err := s.ns.EnableJetStream(&server.JetStreamConfig{StoreDir: dir, MaxStore: maxStore}); err != nil {
			log.Error("opening the streams again", "error", err)
			s.full.Store(true)
			continue
		}
		log.Warn("the streams are open again")
	}
}
