package gate

import (
	"context"
	"time"
)

const (
	canarySteps = 64
	canarySleep = 10 * time.Millisecond // as the mock's step
	canaryWork  = 200_000               // rounds, some 0.2 ms
)

// canary tells how fast the machine is, in steps/s, each a sleep and a little work: what the mock and the services do
// between its steps. It is done by this process alone, so that no change to the pipeline can slow it. It takes about 0.7 s.
func canary(ctx context.Context) (float64, error) {
	begin := time.Now()
	x := uint64(begin.UnixNano()) | 1
	for range canarySteps {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(canarySleep):
		}
		for range canaryWork {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	took := time.Since(begin)
	if x == 0 { // it never is; the work is not left out
		return 0, nil
	}
	return canarySteps / took.Seconds(), nil
}
