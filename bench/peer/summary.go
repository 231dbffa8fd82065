package peer

import (
	"math"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/bench/pipeline"
)

// Quantiles sums durations up, exactly.
type Quantiles struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// Block is what one server did with one block of requests, or with several of them taken together.
type Block struct {
	Length       time.Duration  `json:"length_ns"` // until the last answer
	Requests     int            `json:"requests"`
	Complete     int            `json:"complete"`
	Reasons      map[string]int `json:"reasons,omitempty"` // why the others were not
	PromptTokens int            `json:"prompt_tokens"`     // of complete answers, as usage says
	// CachedTokens of prompts were found in a prefix cache: as usage says, or else the server's counters, which also count
	// answers that were not complete. CachedRatio is their part of the prompts' tokens.
	CachedTokens int     `json:"cached_tokens"`
	CachedRatio  float64 `json:"cached_ratio"`
	OutputTokens int     `json:"output_tokens"`

	OutputRate float64 `json:"output_tokens_per_second"`
	PromptRate float64 `json:"prompt_tokens_per_second"` // over Length
	// PrefillRate is the median over requests of prompt tokens / TTFT: at one request at a time, the speed of a prefill with
	// everything around it; at more, queueing is in it.
	PrefillRate float64   `json:"prefill_tokens_per_second"`
	TTFT        Quantiles `json:"ttft"`
	ITL         Quantiles `json:"itl"`
	TPOT        Quantiles `json:"tpot"`
	E2E         Quantiles `json:"e2e"`
}

// sample is the records of a block.
type sample struct {
	length  time.Duration
	records []*load.Record
	found   pipeline.Counters // by the server's own counters; zero: it has none
}

// summarize sums up one or several blocks.
func summarize(samples ...sample) Block {
	var b Block
	var ttft, itl, tpot, e2e []time.Duration
	var prefill []float64
	var own pipeline.Counters
	for _, s := range samples {
		own.Prompt += s.found.Prompt
		own.Cached += s.found.Cached
		b.Length += s.length
		b.Requests += len(s.records)
		for _, r := range s.records {
			if r.Outcome != load.OK || r.Usage == nil {
				if b.Reasons == nil {
					b.Reasons = map[string]int{}
				}
				b.Reasons[why(r)]++
				continue
			}
			b.Complete++
			b.PromptTokens += r.Usage.PromptTokens
			b.CachedTokens += r.Usage.CachedTokens
			b.OutputTokens += r.Usage.CompletionTokens
			e2e = append(e2e, r.E2E)
			if r.TTFT > 0 {
				ttft = append(ttft, r.TTFT)
				prefill = append(prefill, float64(r.Usage.PromptTokens)/r.TTFT.Seconds())
			}
			before := len(itl)
			itl = load.AppendIntervals(itl, r.Gaps, r.Usage.CompletionTokens)
			if own := itl[before:]; len(own) > 0 {
				var sum time.Duration
				for _, d := range own {
					sum += d
				}
				tpot = append(tpot, sum/time.Duration(len(own)))
			}
		}
	}
	if s := b.Length.Seconds(); s > 0 {
		b.OutputRate, b.PromptRate = float64(b.OutputTokens)/s, float64(b.PromptTokens)/s
	}
	b.CachedRatio = float64(b.CachedTokens) / float64(max(1, b.PromptTokens))
	if b.CachedTokens == 0 {
		b.CachedTokens, b.CachedRatio = own.Cached, float64(own.Cached)/float64(max(1, own.Prompt))
	}
	b.PrefillRate = medianOf(prefill)
	b.TTFT, b.ITL, b.TPOT, b.E2E = exact(ttft), exact(itl), exact(tpot), exact(e2e)
	return b
}

func why(r *load.Record) string {
	switch {
	case r.Outcome == load.OK:
		return "no usage"
	case r.Reason != "":
		return string(r.Outcome) + ": " + r.Reason
	default:
		return string(r.Outcome)
	}
}

func exact(times []time.Duration) Quantiles {
	if len(times) == 0 {
		return Quantiles{}
	}
	slices.Sort(times)
	at := func(q float64) time.Duration {
		return times[min(len(times)-1, max(0, int(math.Ceil(q*float64(len(times))))-1))]
	}
	return Quantiles{P50: at(0.5), P99: at(0.99)}
}

// medianOf returns the median, 0 of nothing.
func medianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Ratio is ours / theirs, over pairs of neighbouring blocks. All is in order of time; Median is 0 if no pair has one.
type Ratio struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	All    []float64 `json:"all"`
}

// Ratios are the ratios of all that a Block measures. More is better for rates, less for times.
type Ratios struct {
	OutputRate  Ratio `json:"output_tokens_per_second"`
	PromptRate  Ratio `json:"prompt_tokens_per_second"`
	PrefillRate Ratio `json:"prefill_tokens_per_second"`
	TTFTP50     Ratio `json:"ttft_p50"`
	TTFTP99     Ratio `json:"ttft_p99"`
	ITLP50      Ratio `json:"itl_p50"`
	ITLP99      Ratio `json:"itl_p99"`
	E2EP50      Ratio `json:"e2e_p50"`
	E2EP99      Ratio `json:"e2e_p99"`
}

// ratioOf sums up the ratios of pairs; a pair with a 0 has none.
func ratioOf(ours, theirs []float64) Ratio {
	r := Ratio{All: []float64{}}
	for i := range min(len(ours), len(theirs)) {
		if ours[i] > 0 && theirs[i] > 0 {
			r.All = append(r.All, ours[i]/theirs[i])
		}
	}
	if len(r.All) > 0 {
		r.Median, r.Min, r.Max = medianOf(r.All), slices.Min(r.All), slices.Max(r.All)
	}
	return r
}

// ratios compares blocks of the same index.
func ratios(ours, theirs []Block) Ratios {
	of := func(get func(*Block) float64) Ratio {
		values := func(blocks []Block) []float64 {
			out := make([]float64, len(blocks))
			for i := range blocks {
				out[i] = get(&blocks[i])
			}
			return out
		}
		return ratioOf(values(ours), values(theirs))
	}
	return Ratios{
		OutputRate:  of(func(b *Block) float64 { return b.OutputRate }),
		PromptRate:  of(func(b *Block) float64 { return b.PromptRate }),
		PrefillRate: of(func(b *Block) float64 { return b.PrefillRate }),
		TTFTP50:     of(func(b *Block) float64 { return float64(b.TTFT.P50) }),
		TTFTP99:     of(func(b *Block) float64 { return float64(b.TTFT.P99) }),
		ITLP50:      of(func(b *Block) float64 { return float64(b.ITL.P50) }),
		ITLP99:      of(func(b *Block) float64 { return float64(b.ITL.P99) }),
		E2EP50:      of(func(b *Block) float64 { return float64(b.E2E.P50) }),
		E2EP99:      of(func(b *Block) float64 { return float64(b.E2E.P99) }),
	}
}

// oursFirst reports who goes first in the n-th pair of blocks: A B B A A B B A, so that a drift of the machine cancels out.
func oursFirst(n int) bool { return n%2 == 0 }
