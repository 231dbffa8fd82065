package mock

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/worker"
)

var _ worker.Profiler = (*Backend)(nil)

// Profile implements worker.Profiler: the stated cost model, exactly. It is nil for an engine that takes no time for some of its work.
func (b *Backend) Profile() *profile.Profile { return b.cfg.profile() }

func (c *Config) profile() *profile.Profile {
	if c.Profile != nil {
		return c.Profile
	}
	p := &profile.Profile{Version: profile.Version, Name: "mock-" + c.speed(), Source: "stated by the mock engine",
		Limits: profile.Limits{KVTokens: c.KVCells, PageTokens: 1, Sequences: c.Sequences, MaxBatch: min(c.Sequences, c.BatchTokens),
			BatchTokens: c.BatchTokens, ChunkTokens: c.BatchTokens, ContextTokens: c.ContextTokens},
		Cost: profile.Cost{Base: float64(c.StepBase)}}
	if c.PrefillRate > 0 {
		p.Cost.PrefillToken = float64(time.Second) / c.PrefillRate
	}
	if one := float64(c.StepSequence); one > 0 {
		p.Cost.Decode = []profile.Point{{Batch: 1, Time: one}, {Batch: 2, Time: 2 * one}}
	}
	if p.Validate() != nil {
		return nil
	}
	return p
}
