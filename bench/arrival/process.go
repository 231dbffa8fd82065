package arrival

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// Process says how arrivals are spread over time.
type Process interface {
	// Times are the arrivals in [0, length) since the start of the run, ascending, rate of them per second in the mean. A rate
	// that is not above 0 has none. The same arguments give the same times.
	Times(seed uint64, rate float64, length time.Duration) iter.Seq[time.Duration]
	// String is the text that Parse reads.
	String() string
}

// Streams of randomness that do not touch each other.
const (
	streamPoisson = 0x6f70656e6c6f6f70
	streamGamma   = 0x67616d6d61
	streamOnOff   = 0x6f6e6f6666
	streamRamp    = 0x72616d70
)

// Poisson is arrivals that know nothing of each other. A longer run begins with the arrivals of a shorter one.
type Poisson struct{}

// Times implements Process.
func (Poisson) Times(seed uint64, rate float64, length time.Duration) iter.Seq[time.Duration] {
	return random(seed, streamPoisson, rate, length, func(rng *rand.Rand) func() float64 {
		t := 0.0
		return func() float64 {
			t += rng.ExpFloat64() / rate
			return t
		}
	})
}

func (Poisson) String() string { return "poisson" }

// Gamma is a renewal process whose gaps are gamma distributed. Above 1, CV makes bursts; 1 is Poisson; below, arrivals are more
// regular than chance. The process is stationary: the first gap is what a visitor at a random time has to wait. A longer run
// begins with the arrivals of a shorter one.
type Gamma struct {
	CV float64 // standard deviation of a gap by its mean, in [0.05, 20]
}

// Times implements Process.
func (g Gamma) Times(seed uint64, rate float64, length time.Duration) iter.Seq[time.Duration] {
	return random(seed, streamGamma, rate, length, func(rng *rand.Rand) func() float64 {
		shape := 1 / (g.CV * g.CV)
		gap := distuv.Gamma{Alpha: shape, Beta: shape * rate, Src: rng}
		// The gap around a random time is long with a probability in proportion to its length, which raises the shape by one;
		// the time falls anywhere in it.
		around := gap
		around.Alpha++
		t := -1.0
		return func() float64 {
			if t < 0 {
				t = rng.Float64() * around.Rand()
			} else {
				t += gap.Rand()
			}
			return t
		}
	})
}

func (g Gamma) String() string { return "gamma:cv=" + number(g.CV) }

// OnOff is a Markov-modulated Poisson process with two states, whose durations are exponential. It begins in either state with
// the probability of finding it there. A longer run begins with the arrivals of a shorter one.
type OnOff struct {
	On, Off time.Duration // mean duration of a state, from 1ms
	Low     float64       // rate while off by the rate while on, in [0, 1]
}

// Times implements Process.
func (o OnOff) Times(seed uint64, rate float64, length time.Duration) iter.Seq[time.Duration] {
	return random(seed, streamOnOff, rate, length, func(rng *rand.Rand) func() float64 {
		mean := [2]float64{o.Off.Seconds(), o.On.Seconds()}
		high := rate * (mean[0] + mean[1]) / (mean[1] + mean[0]*o.Low)
		rates := [2]float64{high * o.Low, high}
		state := 0
		if rng.Float64()*(mean[0]+mean[1]) < mean[1] {
			state = 1
		}
		t, until := 0.0, rng.ExpFloat64()*mean[state]
		return func() float64 {
			for {
				// A rate of 0 has its next arrival never. What is left of a gap when the state changes is as long as a new one.
				if next := t + rng.ExpFloat64()/rates[state]; next < until {
					t = next
					return t
				}
				if t = until; t >= length.Seconds() {
					return t
				}
				state = 1 - state
				until += rng.ExpFloat64() * mean[state]
			}
		}
	})
}

func (o OnOff) String() string {
	return fmt.Sprintf("onoff:on=%s,off=%s,low=%s", o.On, o.Off, number(o.Low))
}

// Ramp is a Poisson process whose rate goes in a straight line from From to To over the length of the run. Only their ratio
// counts: the mean over the run is the rate that was asked for.
type Ramp struct {
	From, To float64 // in [0, 1000], not both 0
}

// Times implements Process.
func (r Ramp) Times(seed uint64, rate float64, length time.Duration) iter.Seq[time.Duration] {
	return random(seed, streamRamp, rate, length, func(rng *rand.Rand) func() float64 {
		// Arrivals up to t are rate·2/(From+To)·(From·t + (To-From)·t²/(2·length)) in the mean. Its inverse makes those of a
		// process with rate 1 ours.
		scale := rate * 2 / (r.From + r.To)
		a := (r.To - r.From) / (2 * length.Seconds())
		sum := 0.0
		return func() float64 {
			sum += rng.ExpFloat64() / scale
			square := r.From*r.From + 4*a*sum
			if square < 0 { // behind the time when the rate would be 0
				return math.Inf(1)
			}
			return 2 * sum / (r.From + math.Sqrt(square))
		}
	})
}

func (r Ramp) String() string { return "ramp:from=" + number(r.From) + ",to=" + number(r.To) }

// Constant is arrivals at equal distances, the first at 0. The seed changes nothing. A longer run begins with the arrivals of a
// shorter one.
type Constant struct{}

// Times implements Process.
func (Constant) Times(_ uint64, rate float64, length time.Duration) iter.Seq[time.Duration] {
	return random(0, 0, rate, length, func(*rand.Rand) func() float64 {
		i := -1.0
		return func() float64 {
			i++
			return i / rate
		}
	})
}

func (Constant) String() string { return "constant" }

// random is the sequence of what begin's function returns, in seconds, up to length.
func random(seed, stream uint64, rate float64, length time.Duration, begin func(*rand.Rand) func() float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		if !(rate > 0) || length <= 0 {
			return
		}
		if stream != streamPoisson { // whose times are older than this, and are kept
			seed = mix(seed)
		}
		next := begin(rand.New(rand.NewPCG(seed, stream)))
		for {
			at := next() * float64(time.Second)
			// Compared before the conversion, which has no value for what a Duration cannot hold.
			if !(at < float64(length)) || !yield(time.Duration(at)) {
				return
			}
		}
	}
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014): the first draws of neighbouring seeds have nothing in common.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
