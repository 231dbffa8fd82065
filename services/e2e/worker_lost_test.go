package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/bench/load"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/worker/mock"
)

// engineSteps is a mock on which the answers below take about two seconds.
var engineSteps = []string{"--backend", "mock", "--mock-step", "20ms", "--mock-step-per-seq", "100us", "--mock-prefill-rate", "0", "--sequences", "16"}

// A worker is killed (SIGKILL) in mid-stream, over and over. Every client's stream completes, and its text is what the
// first attempt had sent, followed by what the second made of it.
func TestWorkerLost(t *testing.T) {
	rounds := fromEnv(t, "CADENCE_TEST_KILL_ROUNDS", 5)
	cfg := mock.FreeConfig()
	workersLost(t, rounds, engineSteps, func(j job, splice int) string { return j.answer(t, cfg, splice) })
}

// With an engine that continues in the same way in every attempt, nothing shows at all.
func TestWorkerLostIsInvisible(t *testing.T) {
	rounds := max(1, fromEnv(t, "CADENCE_TEST_KILL_ROUNDS", 5)/2)
	cfg := mock.FreeConfig()
	cfg.AttemptIndependent = true
	workersLost(t, rounds, append(slices.Clone(engineSteps), "--mock-attempt-independent"),
		func(j job, _ int) string { return j.answer(t, cfg, j.tokens) })
}

func workersLost(t *testing.T, rounds int, engine []string, want func(j job, splice int) string) {
	const n = 12
	workers := []string{"worker-a", "worker-b"}
	d := deploy(t, workers, engine...)
	c, log := d.client(), d.log()
	spliced := 0
	for round := range rounds {
		jobs := makeJobs(n, 80, 100)
		requests := make([]*load.Request, n)
		for i, j := range jobs {
			requests[i] = j.request(t, fmt.Sprintf("round-%d-%d", round, i))
		}
		done := make(chan []*load.Record, 1)
		go func() { done <- all(context.WithoutCancel(t.Context()), c, requests) }()
		eventually(t, startWithin, "all streams running", func() error {
			if running, err := d.running(); err != nil || running < n {
				return fmt.Errorf("%d of %d, %w", running, n, err)
			}
			return nil
		})
		victim := workers[round%len(workers)]
		d.kill(victim)
		records := <-done
		var events []*schema.Stored // the last of a request comes after its client's last byte
		eventually(t, 10*time.Second, "events", func() (err error) {
			if events, err = log.read(); err != nil {
				return err
			}
			for _, r := range records {
				if l := lifeOf(events, schema.RequestID(r.RequestID)); len(l.terminals) == 0 {
					return fmt.Errorf("%s has not ended", r.ClientID)
				}
			}
			return nil
		})
		for i, r := range records {
			if err := jobs[i].complete(r); err != nil {
				t.Errorf("round %d, %d: %v", round, i, err)
				continue
			}
			l := lifeOf(events, schema.RequestID(r.RequestID))
			if err := l.check(); err != nil {
				t.Errorf("round %d, %d: %v", round, i, err)
				continue
			}
			splice := len(l.resume)
			if l.attempts == 1 {
				splice = jobs[i].tokens
			} else {
				spliced++
			}
			if got, want := r.Text, want(jobs[i], splice); got != want {
				t.Errorf("round %d, %d, after %d tokens: %s", round, i, splice, firstDifference(got, want))
			}
			if stored, err := l.text(t, log.c); err != nil || stored != r.Text {
				t.Errorf("round %d, %d: TOKENS tell another answer: %v: %s", round, i, err, firstDifference(stored, r.Text))
			}
		}
		d.start(victim)
		eventually(t, startWithin, "worker is back", func() error {
			slots, err := metric(d.metricsURL(victim), "cadence_worker_slots")
			if err == nil && slots == 0 {
				err = fmt.Errorf("no slots")
			}
			return err
		})
	}
	t.Logf("%d rounds, %d of %d streams went on elsewhere", rounds, spliced, rounds*n)
	if spliced < rounds {
		t.Errorf("only %d streams were interrupted in %d rounds: this tested nothing", spliced, rounds)
	}
	d.stop()
}

// life is what the event log says of one request.
type life struct {
	id        schema.RequestID
	ingress   schema.IngressID
	attempts  uint32
	resume    schema.Tokens // what the last attempt continued from
	lost      map[schema.WorkerID]bool
	terminals []*schema.Stored // those that count: none of a lost worker after its end
}

func lifeOf(events []*schema.Stored, id schema.RequestID) *life {
	l := &life{id: id, lost: map[schema.WorkerID]bool{}}
	for _, e := range events {
		if e.Type == schema.WorkerDown {
			l.lost[e.Worker] = true
		}
		if e.Request != id {
			continue
		}
		switch {
		case e.Type == schema.Received:
			l.ingress = e.Ingress
		case e.Type == schema.Dispatched && e.Attempt > l.attempts:
			l.attempts, l.resume = e.Attempt, e.Resume
		case e.Type.Terminal() && !l.lost[e.Worker]:
			l.terminals = append(l.terminals, e)
		}
	}
	return l
}

func (l *life) check() error {
	if len(l.terminals) != 1 || l.terminals[0].Type != schema.Finished || l.terminals[0].Attempt != l.attempts {
		return fmt.Errorf("%s: %d attempts, and ends %v", l.id, l.attempts, kinds(l.terminals))
	}
	if l.attempts > 2 {
		return fmt.Errorf("%s: %d attempts for one lost worker", l.id, l.attempts)
	}
	return nil
}

func kinds(events []*schema.Stored) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s(%s) of attempt %d by %s; ", e.Type, e.Reason, e.Attempt, e.Source)
	}
	return b.String()
}

// story tells every event of a request, for messages.
func story(events []*schema.Stored, id schema.RequestID) string {
	var b strings.Builder
	for _, e := range events {
		if e.Request == id {
			fmt.Fprintf(&b, "\n\t%d %s %s %s attempt %d by %s", e.Seq, time.Unix(0, e.StoredAt).UTC().Format("15:04:05.000"), e.Type, e.Reason, e.Attempt, e.Source)
		}
	}
	return b.String()
}

// text is the answer as the store tells it: what the last attempt continued from, then that attempt's tokens.
func (l *life) text(t testing.TB, c *streams.Client) (string, error) {
	t.Helper()
	chunks, err := c.Chunks(context.Background(), l.ingress, l.id)
	if err != nil {
		return "", err
	}
	tokens := slices.Clone([]int32(l.resume))
	for _, chunk := range chunks {
		switch {
		case chunk.Attempt < l.attempts: // may go further than what was relayed, and must agree with it before
			for i, id := range chunk.IDs {
				if at := int(chunk.Index) + i; at < len(l.resume) && l.resume[at] != id {
					return "", fmt.Errorf("token %d was sealed as %d, attempt %d had sent %d", at, l.resume[at], chunk.Attempt, id)
				}
			}
		case int(chunk.Index) != len(tokens):
			return "", fmt.Errorf("index %d of attempt %d after %d tokens", chunk.Index, chunk.Attempt, len(tokens))
		default:
			tokens = append(tokens, chunk.IDs...)
		}
	}
	return text(t, tokens), nil
}
