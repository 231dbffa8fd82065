package admission

import (
	"math"
	"time"
)

// PriceConfig are the constants of a Price.
type PriceConfig struct {
	// Window is how far back arrivals count, > 0. It reaches further, up to MaxWindow, while fewer than MinArrivals came in it.
	Window, MaxWindow time.Duration
	MinArrivals       int // in [1, MaxArrivals]
	// MaxArrivals bounds the memory, in [1, 1<<20]: if more came in the window, it reaches back only as far as the last of them.
	MaxArrivals int
	// Utilisation is which part of the engines' time is sold, in (0, 10]; see Price about cost.
	Utilisation float64
	// Weight is multiplied with the dual price, in (0, 1]; see Price about ties.
	Weight float64
	// Every is the least time between two computations of λ, ≥ 0.
	Every time.Duration
	// Damping is the time constant with which λ follows the dual price, ≥ 0; 0: it is the dual price. It becomes 0 at once when
	// demand fits.
	Damping time.Duration
}

// DefaultPrice returns the defaults: 40 s and 100 arrivals, undamped. Utilisation and Weight are what did well at every load in
// simulations of one engine, with answers of mixed and of equal lengths that depend on their caps or do not.
func DefaultPrice() PriceConfig {
	return PriceConfig{Window: 40 * time.Second, MaxWindow: 400 * time.Second, MinArrivals: 100, MaxArrivals: 8192,
		Utilisation: 0.6, Weight: 0.8, Every: 100 * time.Millisecond}
}

// Validate returns ErrConfig, naming the key and the allowed values.
func (c *PriceConfig) Validate() error {
	const longest = 24 * time.Hour
	switch {
	case c.Window <= 0 || c.Window > longest:
		return bad("price.window", c.Window, "more than 0, to 24h")
	case c.MaxWindow < c.Window || c.MaxWindow > longest:
		return bad("price.max_window", c.MaxWindow, "window to 24h")
	case c.MaxArrivals < 1 || c.MaxArrivals > 1<<20:
		return bad("price.max_arrivals", c.MaxArrivals, "1 to 1048576")
	case c.MinArrivals < 1 || c.MinArrivals > c.MaxArrivals:
		return bad("price.min_arrivals", c.MinArrivals, "1 to max_arrivals")
	case !within(c.Utilisation, math.SmallestNonzeroFloat64, 10):
		return bad("price.utilisation", c.Utilisation, "more than 0, to 10")
	case !within(c.Weight, math.SmallestNonzeroFloat64, 1):
		return bad("price.weight", c.Weight, "more than 0, to 1")
	case c.Every < 0:
		return bad("price.every", c.Every, "0 and more")
	case c.Damping < 0:
		return bad("price.damping", c.Damping, "0 (off) and more")
	}
	return nil
}

// Densities are counted in bins, subBins of each power of two from 2^lowest per second, linear within it. The first bin holds what
// is below, the last one what was promised.
const (
	subBins  = 64
	lowest   = -20
	octaves  = 40
	promised = octaves*subBins + 1
	bins     = promised + 1
	// dearest is the most that one arrival counts for, so that sums do not overflow.
	dearest = time.Hour
)

// Price is the shadow price of an engine's time: the dual price of the fractional knapsack of what was asked for lately (Dantzig
// 1957). Arrivals are sorted by p/cost, with p the probability to meet the objectives on an idle engine, and filled into the time
// that the engines have in the window; λ is the p/cost of the first that does not fit, and 0 if all do. With p as it is under load,
// congestion would lower its own price.
//
// What was promised is served whatever it is worth, so it is filled in first.
//
// Cost. What a request costs depends on what the engine holds: alone, it costs its whole run, in a full batch a fraction of that,
// since batching shares the steps. The price is for times of scarcity, so cost is the request's part of the time of an engine that
// is full (Outlook.Share): it does not depend on the state, is the same for what was admitted and what was refused, and sums to the
// engine's time when that is scarce. At low load it says too little, but then demand fits by far. The time that the admission adds
// now (Outlook.Cost) sums to the busy time of what was admitted at any load, but prices what was refused by the state that refusing
// made; see Config.ChargeCost. Utilisation corrects for a bias of either, and below 1 sells less than there is: a queue near
// saturation is long before demand exceeds the capacity.
//
// Ties. If all requests are alike, the dual price equals what each is worth on an idle engine, and under load none is worth as
// much: they would be admitted one by one, whenever the engine is idle. A Weight below 1 leaves room for that part of the worth to
// be lost to queueing.
//
// Adding an arrival takes constant time and allocates nothing; λ is accurate to 1/64. It has one owner.
type Price struct {
	cfg  PriceConfig
	ring []arrival // len = MaxArrivals
	head int       // of the oldest
	n    int
	keys map[uint64]int // of what is in the ring: where
	part float64        // of the engines' time that is this price's to sell
	cost [bins]int64    // ns, by density
	sum  int64          // of cost

	begun      bool
	start, now time.Duration
	cut        time.Duration // of the newest that had to leave for want of room
	wasCut     bool

	lambda   float64
	computed bool
	at       time.Duration // of the last computation
}

type arrival struct {
	at   time.Duration
	key  uint64
	cost int64
	bin  int
}

// NewPrice returns a Price without arrivals, or ErrConfig.
func NewPrice(cfg PriceConfig) (*Price, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Price{cfg: cfg, ring: make([]arrival, cfg.MaxArrivals), keys: make(map[uint64]int, cfg.MaxArrivals), part: 1}, nil
}

// Add counts an arrival, admitted or not, with the probability to meet its objectives on an idle engine and its cost. Another one
// of the same key in the window, unless that is 0, counts as the same demand. Guaranteed says that it was admitted with a promise; of
// those of one key one is enough.
func (p *Price) Add(now time.Duration, key uint64, meet float64, cost time.Duration, guaranteed bool) {
	p.pass(now)
	if key != 0 {
		if at, ok := p.keys[key]; ok {
			if a := &p.ring[at]; guaranteed {
				p.cost[a.bin] -= a.cost
				a.bin = promised
				p.cost[a.bin] += a.cost
			}
			return
		}
	}
	if p.n == len(p.ring) {
		p.cut, p.wasCut = p.ring[p.head].at, true
		p.drop()
	}
	cost = min(max(1, cost), dearest)
	a := arrival{at: p.now, key: key, cost: int64(cost), bin: binOf(meet / cost.Seconds())}
	if guaranteed {
		a.bin = promised
	}
	at := (p.head + p.n) % len(p.ring)
	if key != 0 {
		p.keys[key] = at
	}
	p.ring[at] = a
	p.n++
	p.cost[a.bin] += a.cost
	p.sum += a.cost
}

// Sell says which part of the engines' time is this price's to sell from now on, in (0, 1]; anything else is all of it, as at first.
// Of several that each see their own arrivals at the same engines none may sell the whole.
func (p *Price) Sell(part float64) {
	if !(part > 0 && part < 1) {
		part = 1
	}
	p.part = part
}

// Lambda returns the price of a second of an engine's time with so many of them, in requests within their objectives, ≥ 0.
func (p *Price) Lambda(now time.Duration, workers int) float64 {
	p.pass(now)
	if p.computed && p.now-p.at < p.cfg.Every {
		return p.lambda
	}
	dual := float64(p.cfg.Weight * p.dual(p.capacity(workers)))
	switch passed := p.now - p.at; {
	case dual == 0 || p.cfg.Damping == 0:
		p.lambda = dual
	case !p.computed: // it has been 0 so far
	default:
		p.lambda += float64((dual - p.lambda) * (float64(passed) / float64(passed+p.cfg.Damping)))
	}
	p.computed, p.at = true, p.now
	return p.lambda
}

// Demand returns the cost of what arrived in the window by the time that so many engines had, ≥ 0; above 1 it does not fit.
func (p *Price) Demand(now time.Duration, workers int) float64 {
	p.pass(now)
	if p.sum == 0 {
		return 0
	}
	return float64(p.sum) / float64(p.capacity(workers)) // +Inf without any
}

// Arrivals returns how many count now, and since when.
func (p *Price) Arrivals(now time.Duration) (n int, window time.Duration) {
	p.pass(now)
	return p.n, p.span()
}

// dual fills the knapsack from the densest bin down. Within the bin where it is full λ goes from the upper to the lower edge, so
// that it is monotone in demand.
func (p *Price) dual(capacity int64) float64 {
	if p.sum <= capacity {
		return 0
	}
	left := capacity
	for b := promised; b > 0; b-- {
		if p.cost[b] > left {
			lo, hi := edges(b)
			return hi - float64((hi-lo)*(float64(left)/float64(p.cost[b])))
		}
		left -= p.cost[b]
	}
	return 0 // only what is next to worthless does not fit
}

// capacity is what can be sold in the window, in ns.
func (p *Price) capacity(workers int) int64 {
	c := float64(p.span()) * float64(float64(max(0, workers))*float64(p.part*p.cfg.Utilisation))
	return int64(min(c, math.MaxInt64/2))
}

// span is how long the arrivals that count took to come. Before the first of all, nothing came.
func (p *Price) span() time.Duration {
	w := p.cfg.Window
	if p.n < p.cfg.MinArrivals {
		w = min(max(w, p.now-p.start), p.cfg.MaxWindow)
	} else if p.n == p.cfg.MinArrivals {
		w = max(w, p.now-p.ring[p.head].at)
	}
	if p.wasCut {
		w = min(w, p.now-p.cut)
	}
	return w
}

// pass lets time pass, and arrivals leave the window.
func (p *Price) pass(now time.Duration) {
	if !p.begun {
		p.begun, p.start, p.now = true, now, now
	}
	p.now = max(p.now, now)
	for p.n > 0 {
		age := p.now - p.ring[p.head].at
		if age <= p.cfg.Window || p.n <= p.cfg.MinArrivals && age <= p.cfg.MaxWindow {
			return
		}
		p.drop()
	}
}

// drop forgets the oldest.
func (p *Price) drop() {
	a := &p.ring[p.head]
	if a.key != 0 {
		delete(p.keys, a.key)
	}
	p.cost[a.bin] -= a.cost
	p.sum -= a.cost
	p.head = (p.head + 1) % len(p.ring)
	p.n--
}

// binOf returns the bin of a density, per second.
func binOf(density float64) int {
	switch {
	case !(density >= math.Ldexp(1, lowest)): // NaN too
		return 0
	case density >= math.Ldexp(1, lowest+octaves):
		return promised - 1
	}
	f, e := math.Frexp(density) // f in [1/2, 1)
	return 1 + (e-1-lowest)*subBins + int((2*f-1)*subBins)
}

// edges returns the least density in a bin above 0, and the least above it. All that was promised counts as denser than anything
// else.
func edges(bin int) (lo, hi float64) {
	edge := func(b int) float64 { return math.Ldexp(1+float64(b%subBins)/subBins, lowest+b/subBins) }
	if bin == promised {
		return edge(bin - 1), edge(bin - 1)
	}
	return edge(bin - 1), edge(bin)
}
