package ingress

import (
	"context"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/nats-io/nats.go"
)

// watch looks after every open request until ctx ends.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Watch)
	defer tick.Stop()
	var answers []*answer
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			answers = s.relay.all(answers[:0])
			for _, a := range answers {
				s.attend(a, now)
			}
			clear(answers)
		}
	}
}

// attend does what is due for one answer.
func (s *Server) attend(a *answer, now time.Time) {
	a.mu.Lock()
	b := a.body
	if a.closed {
		a.mu.Unlock()
		return
	}
	expired := !a.until.IsZero() && now.After(a.until)
	look, lost := a.overdue(now)
	if b != nil && b.encoder != nil && s.clock()-b.wrote.Load() >= int64(s.cfg.KeepAlive) {
		b.ping = true
		a.wake()
	}
	a.mu.Unlock()
	switch {
	case expired:
		s.close(a, schema.CancelGrace)
		return
	case lost:
		s.giveUp(a)
	case look:
		s.fill(a)
	}
	if b != nil && b.conn != nil && b.conn.gone() {
		s.lost(b)
	}
}

// pulse sends heartbeats and looks after reconnections until ctx ends.
func (s *Server) pulse(ctx context.Context) {
	nc := s.client.JetStream().Conn()
	status := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(status)
	tick := time.NewTicker(s.cfg.Heartbeat)
	defer tick.Stop()
	s.beat()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.gate.tick(s.cfg.Heartbeat)
			s.beat()
		case <-s.beatNow:
			s.beat()
		case <-status:
			// The server must know the subscriptions again before the store is read, or what comes between is lost.
			once, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
			if err := s.client.Flush(once); err != nil {
				s.log.Warn("flush after reconnection", "error", err)
			}
			cancel()
			s.refill()
		}
	}
}

func (s *Server) beat() {
	open, _, _ := s.gate.count()
	state := &schema.IngressState{Ingress: s.id, Interval: s.cfg.Heartbeat, Draining: s.gate.draining(), Open: int32(open)}
	if err := s.client.PublishIngressState(state); err != nil {
		s.log.Warn("heartbeat not sent", "error", err)
	}
}
