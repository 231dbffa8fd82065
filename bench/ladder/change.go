package ladder

import (
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// Change replaces parts of a definition; what is zero stays as it is. The tags are the flags of `cadence ladder`.
type Change struct {
	Workload string        `help:"another workload: name or file" placeholder:"NAME|FILE"`
	Arrivals string        `help:"another arrival process: poisson, gamma:cv=2, onoff:on=10s,off=20s,low=0.2, ramp:from=0.5,to=2 or constant" placeholder:"PROCESS" sep:"none"`
	Rates    []float64     `help:"other rates, requests/s, instead of the ladder's rates or loads" xor:"offered"`
	Loads    []float64     `help:"other loads, multiples of the measured capacity, instead of the ladder's rates or loads" xor:"offered"`
	Seeds    []uint64      `help:"other seeds, at least 3"`
	Length   time.Duration `help:"another length of the arrivals of a run; warm-up and tail shrink with it"`
	Drain    time.Duration `help:"another time for which answers are waited for after the length"`
	SLOTTFT  time.Duration `help:"objective instead of the ladder's and the workload's: time to the first token" name:"slo-ttft"`
	SLOTPOT  time.Duration `help:"objective: mean time per output token after the first" name:"slo-tpot"`
	SLOE2E   time.Duration `help:"objective: time to the last token" name:"slo-e2e"`
	Profile  string        `help:"another engine profile, on sim and mock" placeholder:"NAME|FILE"`
	Model    string        `help:"another model, on llama: tiny, 120m or 0.5b (random weights, made here), the name of a pulled one, or a GGUF file"`
	Threads  int           `help:"threads of llama.cpp"`
	UpArgs   []string      `help:"further arguments of cadence up, for every arm" sep:"none" placeholder:"--FLAG=VALUE"`
}

// Apply changes a definition, which is not valid any more if this returns ErrDefinition.
func (c *Change) Apply(d *Definition) error {
	set(&d.Workload, c.Workload)
	set(&d.Arrivals, c.Arrivals)
	set(&d.Drain, c.Drain)
	set(&d.Profile, c.Profile)
	set(&d.Model, c.Model)
	set(&d.Threads, c.Threads)
	if len(c.Rates) > 0 {
		d.Rates, d.Loads = c.Rates, nil
	}
	if len(c.Loads) > 0 {
		d.Rates, d.Loads = nil, c.Loads
	}
	if len(c.Seeds) > 0 {
		d.Seeds = c.Seeds
	}
	if c.Length > 0 {
		if d.Length > 0 {
			factor := float64(c.Length) / float64(d.Length)
			d.Warmup, d.Tail = time.Duration(factor*float64(d.Warmup)), time.Duration(factor*float64(d.Tail))
		}
		d.Length, d.Requests, d.WarmupRequests = c.Length, 0, 0
	}
	if slo := (record.SLO{TTFT: c.SLOTTFT, TPOT: c.SLOTPOT, E2E: c.SLOE2E}); slo != (record.SLO{}) {
		d.SLO, d.Alone = &slo, nil
	}
	d.Args = append(d.Args[:len(d.Args):len(d.Args)], c.UpArgs...)
	return d.Validate()
}

// set replaces a value by another that is not zero.
func set[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// Estimate bounds how long the arrivals of all runs and the wait for their answers take on a real clock; starting services
// comes on top, about five seconds a run. capacity is what loads are multiples of; 0: not known, with which ok is false for a
// ladder that counts in requests and loads.
func (d *Definition) Estimate(capacity float64) (least, most time.Duration, ok bool) {
	for _, j := range d.Plan() {
		rate := j.Rate
		if rate == 0 {
			rate = j.Load * capacity
		}
		if rate <= 0 && d.Requests > 0 {
			return 0, 0, false
		}
		length, _ := d.Times(rate)
		least += length
		most += length + d.Drain
	}
	return least, most, true
}
