package batch

// Usage returns how full the engine is.
func (p *Planner) Usage() Usage {
	k := p.pages.Stats()
	u := Usage{Running: len(p.order), Waiting: p.waiting.len(), FreeSequences: len(p.ids), FreePages: k.Free, UsedPages: k.Pages - k.Free,
		PromisedPages: p.promised, HighWaterPages: k.HighWater, FragmentationRatio: k.Fragmentation}
	if p.cache != nil {
		c := p.cache.Stats()
		u.CachedPages = c.Pages
		u.FreePages += c.EvictablePages
		u.FreeSequences += c.Leaves // an id that runs is counted below
		for _, i := range p.order {
			if _, ok := p.cache.Owned(p.slots[i].seq); ok {
				u.FreeSequences--
			}
		}
	}
	return u
}

// Cached returns how many of a prompt's first tokens would not have to be computed if it started now. It changes nothing.
func (p *Planner) Cached(scope string, prompt []int32) int {
	if p.cache == nil || len(prompt) == 0 {
		return 0
	}
	return min(p.cache.Peek(scope, prompt), len(prompt)-1)
}

// Totals returns what has happened so far.
func (p *Planner) Totals() Totals {
	p.totals.PageCopies = uint64(p.pages.Stats().Copies)
	return p.totals
}
