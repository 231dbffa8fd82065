package admission_test

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/admission"
	"github.com/cadence-slo/cadence/predictor"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/schema/schematest"
)

var update = flag.Bool("update", false, "write what the scenarios do into testdata instead of comparing")

// Scenario files in testdata are commands, each followed by what was decided (indented).
//
//	config KEY=VALUE…       a new marginal rule: min_meet, hysteresis, cold_margin, window, max_window, min_arrivals, max_arrivals,
//	                        utilisation, weight, damping, explore, explore_tokens, explore_burst, spread, retry_max,
//	                        charge_cost=true; every is 0, and unless set explore is 0, utilisation and weight are 1
//	arm NAME [KEY=VALUE…]   a baseline in its place: none, queue-wait, queue-depth, shed, frozen, online, constant, throughput
//	workers N               from now; 1 before
//	default KEY=VALUE…      what requests have unless they say otherwise
//	at DURATION             the time is so much
//	draw NUMBER…            what chance yields from now on, the last again and again; 0.5 before
//	request [KEY=VALUE…]    a request: class, key, e2e, ttft, prompt, cached, cap; its outlook: predicted, first, meet, meet_idle,
//	                        harm, cost, share (like cost), bound, bound_idle, level, breaks, drain, idle; cold; the load: waiting, wait, tokens.
//	                        times=N of them arrive, every=DURATION
//	price                   prints the price, and demand by capacity
//
// `go test ./ingress/admission -run Scenarios -update` writes the output lines anew: read the diff.
func TestScenarios(t *testing.T) {
	schematest.Scenarios(t, "testdata/*.txt", *update, replay)
}

// dice yields given numbers in [0, 1).
type dice struct {
	numbers []float64
}

func (d *dice) Uint64() uint64 {
	u := d.numbers[0]
	if len(d.numbers) > 1 {
		d.numbers = d.numbers[1:]
	}
	return uint64(u * (1 << 53)) // Float64 looks at the lowest 53 bits
}

type script struct {
	t       *testing.T
	out     strings.Builder
	arm     admission.Arm
	dice    *dice
	now     time.Duration
	workers int
	names   []string
	options map[string]string
	usual   map[string]string
}

func replay(t *testing.T, text string) string {
	s := &script{t: t, dice: &dice{[]float64{0.5}}, workers: 1, usual: map[string]string{}}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			continue // the output of an earlier run
		}
		s.out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s.do(line)
		if len(s.options) > 0 {
			t.Fatalf("%q: unknown options %v", line, s.options)
		}
	}
	return s.out.String()
}

func (s *script) do(line string) {
	fields := strings.Fields(line)
	s.names, s.options = nil, map[string]string{}
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			s.options[k] = v
		} else {
			s.names = append(s.names, f)
		}
	}
	switch fields[0] {
	case "config":
		s.config()
	case "arm":
		s.baseline(s.names[0])
	case "workers":
		s.workers = int(s.parse(s.names[0]))
	case "default":
		for k, v := range s.options {
			s.usual[k] = v
		}
		s.options = nil
	case "at":
		d, err := time.ParseDuration(s.names[0])
		s.check(err)
		s.now = d
	case "draw":
		s.dice.numbers = nil
		for _, n := range s.names {
			s.dice.numbers = append(s.dice.numbers, s.parse(n))
		}
	case "request":
		s.request()
	case "price":
		m := s.arm.(*admission.Marginal)
		s.say("λ=%.4g demand=%.4g", m.Lambda(s.now, s.workers), m.Demand(s.now, s.workers))
	default:
		s.t.Fatalf("unknown command %q", line)
	}
}

func (s *script) say(format string, args ...any) { fmt.Fprintf(&s.out, "\t"+format+"\n", args...) }

func (s *script) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s\n%v", s.out.String(), err)
	}
}

func (s *script) parse(v string) float64 {
	f, err := strconv.ParseFloat(v, 64)
	s.check(err)
	return f
}

func (s *script) option(key, def string) string {
	v, ok := s.options[key]
	delete(s.options, key)
	if ok {
		return v
	}
	if v, ok := s.usual[key]; ok {
		return v
	}
	return def
}

func (s *script) number(key string, def float64) float64 {
	return s.parse(s.option(key, strconv.FormatFloat(def, 'g', -1, 64)))
}

func (s *script) duration(key string, def time.Duration) time.Duration {
	d, err := time.ParseDuration(s.option(key, def.String()))
	s.check(err)
	return d
}

func (s *script) flag(name string) bool { return slices.Contains(s.names, name) }

func (s *script) retry() admission.Retry {
	r := admission.DefaultRetry()
	r.Spread, r.Max = s.number("spread", r.Spread), s.duration("retry_max", r.Max)
	return r
}

func (s *script) window() admission.PriceConfig {
	p := admission.DefaultPrice()
	p.Every = 0
	p.Window, p.MaxWindow = s.duration("window", p.Window), s.duration("max_window", p.MaxWindow)
	p.MinArrivals = int(s.number("min_arrivals", float64(p.MinArrivals)))
	p.MaxArrivals = int(s.number("max_arrivals", float64(p.MaxArrivals)))
	p.Utilisation, p.Weight = s.number("utilisation", 1), s.number("weight", 1)
	p.Damping = s.duration("damping", p.Damping)
	return p
}

func (s *script) config() {
	c := admission.DefaultConfig()
	c.Price, c.Retry = s.window(), s.retry()
	c.MinMeet, c.Hysteresis = s.number("min_meet", c.MinMeet), s.number("hysteresis", c.Hysteresis)
	c.ChargeCost = s.option("charge_cost", "") == "true"
	c.ColdMargin = s.number("cold_margin", c.ColdMargin)
	c.Explore.Rate, c.Explore.Tokens = s.number("explore", 0), s.number("explore_tokens", c.Explore.Tokens)
	c.Explore.Burst = s.number("explore_burst", c.Explore.Burst)
	m, err := admission.NewMarginal(c)
	s.check(err)
	s.arm = m
}

func (s *script) baseline(name string) {
	switch name {
	case "none":
		s.arm = admission.None{}
	case "queue-wait":
		a := admission.DefaultQueueWait()
		a.Limit, a.AtArrival = s.duration("limit", a.Limit), s.option("at_arrival", "") == "true"
		a.Retry = s.retry()
		s.check(a.Validate())
		s.arm = &a
	case "queue-depth":
		a := admission.DefaultQueueDepth()
		a.PerWorker, a.Resume = s.number("per_worker", a.PerWorker), s.number("resume", a.Resume)
		s.check(a.Validate())
		s.arm = &a
	case "shed":
		c := admission.DefaultShed()
		c.Window = s.window()
		a, err := admission.NewShed(c)
		s.check(err)
		s.arm = a
	case "frozen", "online":
		a := admission.Frozen(s.number("level", 0.95))
		if name == "online" {
			a = admission.Online(a.Level)
		}
		a.Safety, a.Hysteresis = s.number("safety", a.Safety), s.number("hysteresis", a.Hysteresis)
		s.check(a.Validate())
		s.arm = &a
	case "constant":
		a := admission.ConstantQuantile{Bound: s.duration("bound", 0), Retry: admission.DefaultRetry()}
		s.check(a.Validate())
		s.arm = &a
	case "throughput":
		a := admission.Arithmetic(s.number("rate", 100))
		a.Margin = s.number("margin", a.Margin)
		s.check(a.Validate())
		s.arm = &a
	default:
		s.t.Fatalf("unknown arm %q", name)
	}
}

func (s *script) request() {
	cost := s.duration("cost", time.Second)
	in := admission.Input{
		Request: admission.Request{
			Class: schema.Class(s.option("class", "")), Key: uint64(s.number("key", 0)),
			PromptTokens: int32(s.number("prompt", 10)), CachedTokens: int32(s.number("cached", 0)), CapTokens: int32(s.number("cap", 10)),
			E2E: s.duration("e2e", 0), TTFT: s.duration("ttft", 0),
		},
		Outlook: predictor.Outlook{
			Predicted: s.duration("predicted", 0), First: s.duration("first", 0),
			Meet: s.number("meet", 1), MeetIdle: s.number("meet_idle", 1), Harm: s.number("harm", 0), Cost: cost, Share: s.duration("share", cost),
			Bound: s.duration("bound", 0), BoundIdle: s.duration("bound_idle", 0), Level: s.number("level", 0.95),
			Breaks: s.flag("breaks"), Drain: s.duration("drain", 0), Idle: s.flag("idle"),
		},
		Cold: s.flag("cold"),
		Load: admission.Load{Workers: s.workers, Waiting: int(s.number("waiting", 0)), Wait: s.duration("wait", 0),
			Tokens: int64(s.number("tokens", 0))},
	}
	times, every := int(s.number("times", 1)), s.duration("every", 0)
	rng := rand.New(s.dice)
	said, n := "", 0
	for i := range times {
		in.Now = s.now
		d := s.arm.Decide(&in, rng)
		if i+1 < times {
			s.now += every
		}
		what := s.describe(d)
		if times > 1 {
			what, _, _ = strings.Cut(what, ":") // the figures change all the time
		}
		if n > 0 && what != said {
			s.say("%d × %s", n, said)
			n = 0
		}
		said, n = what, n+1
	}
	if times > 1 {
		s.say("%d × %s", n, said)
	} else {
		s.say("%s", said)
	}
}

// describe prints a decision.
func (s *script) describe(d admission.Decision) string {
	var b strings.Builder
	if d.Admit {
		fmt.Fprintf(&b, "admit %s, %s:", d.Reason, d.Class)
	} else {
		fmt.Fprintf(&b, "refuse %s (%s):", d.Reason, d.Reason.Refusal())
	}
	if s.arm.Name() == "marginal" {
		fmt.Fprintf(&b, " gain=%.4g λ=%.4g", d.Gain, d.Lambda)
	}
	fmt.Fprintf(&b, " propensity=%.4g", d.Propensity)
	if !d.Admit {
		fmt.Fprintf(&b, " retry=%v", d.RetryAfter)
	}
	if d.Note != "" {
		fmt.Fprintf(&b, " (%s)", d.Note)
	}
	return b.String()
}
