package admission

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cadence-slo/cadence/predictor/profile"
)

// ErrConfig is returned for options that cannot work; the message names the key and the allowed values.
var ErrConfig = errors.New("admission: invalid options")

// Options say what is compared. The tags are the flags of `cadence bench admission`.
type Options struct {
	Experiment string        `help:"what is asked: arms (which of them keeps most answers in time), guarantee, shift, foreign, ingresses, far, damping or confounded" default:"arms"`
	Workload   string        `help:"workload: a name or a file (see cadence workload)" default:"seed"`
	SLO        time.Duration `help:"objective of goodput: E2E" default:"4s" name:"slo-e2e"`
	Arms       []string      `help:"arms to compare with none, of the experiment arms; empty: all" placeholder:"ARM"`
	Loads      []float64     `help:"offered rates, as multiples of the best goodput without admission, which is measured first; empty: the experiment's own" placeholder:"LOAD"`
	Rates      []float64     `help:"offered rates in requests/s, instead of --loads"`
	Seeds      int           `help:"seeds that are reported: 1, 2, …; at most 1000; 0: as many as the experiment wants" default:"0"`
	// TuneSeeds are 1001, 1002, …
	TuneSeeds  int           `help:"other seeds, on which each arm's constant is chosen, and the best goodput without admission measured" default:"3"`
	Length     time.Duration `help:"how long requests arrive in a run, in virtual time; 0: as the experiment wants" default:"0s"`
	Warmup     time.Duration `help:"beginning of it that is not counted; 0: as the experiment wants" default:"0s"`
	TuneLength time.Duration `help:"as --length, of the runs that a constant is chosen on" default:"5m"`
	Timeout    time.Duration `help:"the client's own limit for a whole answer; also how long after the last arrival answers are waited for" default:"5m"`
	Out        string        `help:"directory of the figures; empty: none are drawn" type:"path"`
	Quick      bool          `help:"two seeds, at most three loads, two constants for each arm, short runs: to see that it works"`

	Profile *profile.Profile `kong:"-"` // of engine and controller
	Version string           `kong:"-"`
	// Progress, if not nil, hears how many runs are done of those that are known of.
	Progress func(done, total int64) `kong:"-"`
}

// DefaultOptions returns the defaults of the flags, without a profile.
func DefaultOptions() Options {
	return Options{Experiment: armsName, Workload: "seed", SLO: 4 * time.Second, TuneSeeds: 3, TuneLength: 5 * time.Minute, Timeout: 5 * time.Minute}
}

// size is how much of an experiment is done if nothing else is asked for.
type size struct {
	loads          []float64
	seeds          int
	length, warmup time.Duration
}

// usual is the size of the comparison of arms.
var usual = size{[]float64{0.2, 0.5, 0.8, 1, 1.25, 1.6, 2, 3, 4.5, 6}, 10, 10 * time.Minute, time.Minute}

// settle takes from a size what was not asked for.
func (o *Options) settle(s size) {
	if len(o.Loads) == 0 {
		o.Loads = s.loads
	}
	o.Seeds, o.Length, o.Warmup = cmp.Or(o.Seeds, s.seeds), cmp.Or(o.Length, s.length), cmp.Or(o.Warmup, s.warmup)
}

// Seeds of their own: those that are tuned on follow tuneSeed, and what is fitted is fitted to a run with fitSeed.
const (
	tuneSeed = 1000
	fitSeed  = 2001
)

// quick makes little of it.
func (o *Options) quick() {
	o.Loads, o.Seeds, o.TuneSeeds = []float64{0.5, 1, 3}, 2, 1
	o.Length, o.TuneLength, o.Warmup = 2*time.Minute, 90*time.Second, 30*time.Second
}

// Validate returns ErrConfig for the first flag that is outside its range.
func (o *Options) Validate() error {
	bad := func(v float64) bool { return !(v > 0 && v < 1e6) }
	for _, k := range []struct {
		key     string
		ok      bool
		value   any
		allowed string
	}{
		{"workload", o.Workload != "", o.Workload, "a name or a file"},
		{"slo-e2e", o.SLO > 0, o.SLO, "more than 0"},
		{"loads", !slices.ContainsFunc(o.Loads, bad), o.Loads, "numbers above 0"},
		{"rates", !slices.ContainsFunc(o.Rates, bad), o.Rates, "numbers above 0"},
		{"seeds", o.Seeds >= 0 && o.Seeds <= tuneSeed, o.Seeds, "0 (as many as the experiment wants) to 1000"},
		{"tune-seeds", o.TuneSeeds >= 1 && o.TuneSeeds <= fitSeed-tuneSeed-1, o.TuneSeeds, "1 to 1000"},
		{"length", o.Length >= 0, o.Length, "0 (as the experiment wants) and more"},
		{"warmup", o.Warmup >= 0 && (o.Length == 0 || o.Warmup < o.Length), o.Warmup, "0 (as the experiment wants) to below length"},
		{"tune-length", o.TuneLength > 0, o.TuneLength, "more than 0"},
		{"timeout", o.Timeout > 0, o.Timeout, "more than 0"},
	} {
		if !k.ok {
			return fmt.Errorf("%w: %s is %v, allowed: %s", ErrConfig, k.key, k.value, k.allowed)
		}
	}
	if _, err := o.experiment(); err != nil {
		return err
	}
	_, err := o.arms()
	return err
}

// seeds returns n of them, from first.
func seeds(first uint64, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = first + uint64(i)
	}
	return out
}

// rates are those that are offered.
func (o *Options) rates(peak Peak) []float64 {
	if len(o.Rates) > 0 {
		return o.Rates
	}
	var out []float64
	for _, load := range o.Loads {
		out = append(out, load*peak.Goodput)
	}
	return out
}
