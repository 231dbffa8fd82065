package ingress

// ModelFile is for tests from outside.
var ModelFile = modelFile

// Holds returns how many requests of others the latest states of a pool list, and whether they are fresh.
func (s *Server) Holds(pool string) (n int, fresh bool) {
	d := s.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	now := s.since()
	q := d.engines.pool(pool)
	fresh = q.isFresh(now)
	for _, h := range q.holds {
		if h.mine == nil {
			n++
		}
	}
	for _, w := range d.engines.order {
		fresh = fresh && w.isFresh(now)
		for _, h := range w.holds {
			if h.mine == nil {
				n++
			}
		}
	}
	return n, fresh
}
