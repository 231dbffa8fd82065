package ladder

import (
	"fmt"
	"strconv"
)

// Job is one run of a ladder.
type Job struct {
	ID    string  `json:"id"`    // its directory's name
	Order int     `json:"order"` // from 0
	Block int     `json:"block"`
	Arm   string  `json:"arm"`
	Load  float64 `json:"load,omitempty"` // as a multiple of the capacity; 0: the ladder has rates
	Rate  float64 `json:"rate,omitempty"` // requests/s; 0: not known before the capacity is
	Seed  uint64  `json:"seed"`
}

// Plan is the order of execution: block by block, in a block rate by rate, at a rate seed by seed, and for each of these
// all of the block's arms one after the other. Who begins rotates, so that over a block, over the seeds of a rate and over
// the rates of a seed each arm is first as often as another, or once less: whatever heats up or wears off with time meets
// them alike.
func (d *Definition) Plan() []Job {
	points := max(len(d.Rates), len(d.Loads))
	var jobs []Job
	for block, arms := range d.Blocks {
		n := len(arms)
		for point := range points {
			first := rotation(point, len(d.Seeds), n)
			for s, seed := range d.Seeds {
				for k := range n {
					j := Job{Order: len(jobs), Block: block, Arm: arms[(first+s+k)%n], Seed: seed}
					var at string
					if len(d.Rates) > 0 {
						j.Rate = d.Rates[point]
						at = "r" + number(j.Rate)
					} else {
						j.Load = d.Loads[point]
						at = "x" + number(j.Load)
					}
					j.ID = fmt.Sprintf("b%d_%s_%s_s%d", block, at, j.Arm, seed)
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs
}

// rotation is which of n arms is first at the first seed of a rate. The seeds of a rate begin with one arm after the
// other, so that laying the rates end to end on the ring of arms is fair; where the number of seeds divides that of the
// arms, or shares a factor with it, a seed would meet the same few arms first at every rate: once the rates have gone
// around the ring, they go on one further.
func rotation(point, seeds, n int) int {
	lap := n / gcd(seeds, n) // rates until the first arm is the same again
	return (point*seeds + point/lap) % n
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
