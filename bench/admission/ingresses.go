package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/cadence-slo/cadence/bench/control"
)

// How old what an ingress is told may be: of what waits, and of what engines have.
const (
	poolAge   = 20 * time.Millisecond
	engineAge = 50 * time.Millisecond
)

var ingresses = experiment{
	name: "ingresses", question: "What does it cost that several ingresses decide for themselves on one pool?",
	size:  size{[]float64{0.6, 1, 2, 3.5}, 20, 15 * time.Minute, 5 * time.Minute},
	cases: []trial{shared(1, true), shared(2, true), shared(4, true), shared(4, false)},
	columns: []Column{goodput, {Name: "goodput_by_single", About: "goodput by that of one ingress, mean of the ratios", title: "by one's", drawn: true,
		of: goodput.Name, against: always(shared(1, true).name)}, refused, p99, held},
}

// shared is n ingresses, to each of which requests come by chance; of what others let in they are told late or at once.
func shared(n int, late bool) trial {
	name := fmt.Sprintf("%d ingresses", n)
	if n == 1 {
		name = "1 ingress"
	}
	pool, engine := poolAge, engineAge
	if !late {
		name += ", told at once"
		pool, engine = 0, 0
	}
	return trial{name, func(ctx context.Context, b *bench, p place) (sample, error) {
		return b.plain(ctx, p, control.Options{Arm: "marginal", Seed: p.seed, Ingresses: n, PoolAge: pool, EngineAge: engine, ByHash: true})
	}}
}

// plain is a run with a controller and nothing else of its own.
func (b *bench) plain(ctx context.Context, p place, o control.Options) (sample, error) {
	cfg, err := b.config(p.rate, p.seed, b.o.Length)
	if err != nil {
		return sample{}, err
	}
	run, rows, err := b.simulate(ctx, cfg, o)
	if err != nil {
		return sample{}, err
	}
	return common(run, rows), nil
}
