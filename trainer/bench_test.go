package trainer_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/trainer"
)

// BenchmarkCollect is what a request of an event log costs, from its three events to the reservoir.
//
//	go test -run ^$ -bench Collect ./trainer
func BenchmarkCollect(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var all [][]*schema.Event
	for i := range 1000 {
		x := make([]float32, feature.Count)
		for f := range x {
			x[f] = rng.Float32()
		}
		all = append(all, events(newID(b, day.Add(time.Duration(i)*time.Second), rng), "p", x, "w1"))
	}
	c, err := trainer.NewCollector(100, 1, trainer.DefaultRounding(), "f")
	if err != nil {
		b.Fatal(err)
	}
	log := trainer.NewLog("p", func(t *trainer.Trace) error { c.Add(t); return nil })
	for i := 0; b.Loop(); i++ {
		for _, e := range all[i%len(all)] {
			if err := log.Add(e); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkTrain is a training on 2,400 requests in four rounds, with the default trees.
//
//	go test -run ^$ -bench Train ./trainer
func BenchmarkTrain(b *testing.B) {
	rows, p := synthetic(21, 4, 4, 150), trainer.DefaultPlan(0.9)
	p.Rule.MinRows, p.Rule.GroupRows = 300, 100
	for b.Loop() {
		train(b, rows, nil, &p)
	}
}
