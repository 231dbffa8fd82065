package ingress_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/predictor/profile"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
)

// stage is an ingress whose engine and queue hold what the test says.
type stage struct {
	*harness
	mu               sync.Mutex
	running, waiting int
}

// stageInterval is so long that no machine is slow enough for a state to be stale.
const stageInterval = 10 * time.Second

// startStage tells states as workers and schedulers do, until the end of the test.
func startStage(t testing.TB, change func(*ingress.Config)) *stage {
	t.Helper()
	cfg := config()
	if change != nil {
		change(&cfg)
	}
	g := &stage{harness: start(t, cfg)}
	beat := workerState()
	beat.Interval = stageInterval
	g.beat <- beat
	p, err := profile.Open("seed-laptop")
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(p.Batch())
	if err != nil {
		t.Fatal(err)
	}
	hold := func(from, n int) (list []schema.SequenceState) {
		for i := range n {
			list = append(list, schema.SequenceState{Request: schema.RequestID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012x", from+i)), Tenant: "other",
				Kind: schema.KindChat, PromptTokens: 256, OutputTokens: 5, CapTokens: 128, Age: time.Second})
		}
		return list
	}
	tell := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		e := &schema.EngineState{Worker: "w1", Pool: pool, Model: modelName, FreePages: 5000, Running: hold(0, g.running),
			Settings: &schema.EngineSettings{Fingerprint: "f", Profile: text, Plan: plan}}
		if g.running > 0 {
			e.StepLeft = 20 * time.Millisecond
		}
		q := &schema.PoolState{Pool: pool, Epoch: 1, Interval: stageInterval, RequestSeq: 1 << 40, Waiting: hold(1000, g.waiting), WaitingRequests: int32(g.waiting)}
		_, _ = g.client.PublishEngineState(e), g.client.PublishPoolState(q) // the end of the test may be before
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			tell()
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	g.holds(t, 0, 0)
	return g
}

// holds changes what the engine and the queue hold, and waits until the ingress knows.
func (g *stage) holds(t testing.TB, running, waiting int) {
	t.Helper()
	g.mu.Lock()
	g.running, g.waiting = running, waiting
	g.mu.Unlock()
	n := running + waiting
	eventually(t, "state", func() bool {
		known, fresh := g.in.Holds(pool)
		return known == n && fresh
	})
}

// gauge is the value of a metric without labels.
func (g *stage) gauge(t testing.TB, name string) float64 {
	t.Helper()
	return g.gauges(t)[name]
}

func (g *stage) gauges(t testing.TB) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(g.get(t, "/metrics").body) {
		var name string
		var v float64
		if n, _ := fmt.Sscanf(line, "%s %g", &name, &v); n == 2 {
			all[name] = v
		}
	}
	return all
}

// An objective that cannot be met is refused at once, with when to come back and by which rule; one that can is served.
func TestObjectivesAreRespected(t *testing.T) {
	t.Parallel()
	g := startStage(t, nil)
	g.serve(short)
	g.holds(t, 24, 40)
	res := g.post(t, chatPath, chatBody("a b c", ""), "X-SLO-E2E-Ms", "300", "X-SLO-TTFT-Ms", "200", "X-SLO-Class", "guaranteed")
	e := res.want(t, 503, "slo")
	after, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil || after < 1 || after != e.RetryAfter || e.Reason != "slo" || res.Header.Get("X-Cadence-Decision") != "cold_start" {
		t.Errorf("%+v, %+v", e, res.Header)
	}
	if res.Header.Get("X-Cadence-Predicted-Ms") != "" {
		t.Error("a prediction is revealed")
	}
	ev := g.event(schema.RequestID(res.Header.Get("X-Cadence-Request-Id")), schema.Refused)
	if ev.Reason != string(schema.RefusedSLO) || ev.Decision != "cold_start" || ev.Predicted < time.Second || ev.PredictedTTFT <= 0 || ev.Physics <= 0 ||
		len(ev.Features) != feature.Count || ev.TTFTBudget != 200*time.Millisecond || ev.Budget != 300*time.Millisecond || ev.Cost <= 0 ||
		ev.Class != schema.Guaranteed || ev.RetryAfter != time.Duration(after)*time.Second {
		t.Errorf("%+v", ev.Event)
	}
	res = g.post(t, chatPath, chatBody("a b c", ""), "X-SLO-E2E-Ms", "3600000")
	if res.StatusCode != http.StatusOK || res.Header.Get("X-Cadence-Decision") == "" {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	ev = g.event(schema.RequestID(res.Header.Get("X-Cadence-Request-Id")), schema.Admitted)
	if ev.Decision != "cold_start" || ev.Predicted <= 0 || ev.Propensity != 1 || len(ev.Features) != feature.Count || ev.Physics <= 0 {
		t.Errorf("%+v", ev.Event)
	}
	m := g.gauges(t)
	if m[`cadence_ingress_admission_decisions_total{decision="cold_start",outcome="refused"}`] != 1 || m["cadence_ingress_admission_cold"] != 1 ||
		m["cadence_ingress_admission_decision_seconds_count"] != 2 || m["cadence_ingress_admission_prediction_log_ratio_count"] != 1 ||
		m["cadence_ingress_admission_state_age_seconds"] < 0 {
		t.Errorf("%+v", m)
	}
}

// The default objectives count for requests that send none, and a client's own for itself.
func TestDefaultObjectives(t *testing.T) {
	t.Parallel()
	g := startStage(t, func(c *ingress.Config) {
		c.SLOE2E, c.SLOTTFT, c.RevealPrediction, c.ProbeToken = 300*time.Millisecond, 200*time.Millisecond, true, "s3cret"
	})
	g.serve(short)
	g.holds(t, 24, 40)
	res := g.post(t, chatPath, chatBody("a", ""))
	res.want(t, 503, "slo")
	predicted, err := strconv.Atoi(res.Header.Get("X-Cadence-Predicted-Ms"))
	queue, err2 := strconv.Atoi(res.Header.Get("X-Cadence-Queue-Ms"))
	if err != nil || err2 != nil || predicted < 1000 || queue < 300 || queue > predicted {
		t.Errorf("predicted %d ms, queue %d ms", predicted, queue)
	}
	for _, token := range []string{"", "s3cre", "s3cret"} {
		res := g.post(t, chatPath, chatBody("a", ""), "X-Cadence-Probe", token)
		probe := token == "s3cret"
		if (res.StatusCode == http.StatusOK) != probe || (res.Header.Get("X-Cadence-Decision") == "probe") != probe {
			t.Errorf("probe %q: %d %+v", token, res.StatusCode, res.Header)
		}
	}
	own := []string{"X-SLO-E2E-Ms", "3600000", "X-SLO-TTFT-Ms", "3600000"}
	if res := g.post(t, chatPath, chatBody("a", ""), own...); res.StatusCode != http.StatusOK {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

// Promises travel with the request: what is left of objectives, what to do when they are missed, and a guarantee only if it was given.
func TestObjectivesReachThePipeline(t *testing.T) {
	t.Parallel()
	g := startStage(t, nil)
	for late, want := range map[string]schema.OnDeadline{"": "", "demote": schema.OnDeadlineDemote, "cancel": schema.OnDeadlineCancel, "continue": schema.OnDeadlineContinue} {
		s := g.open(t, chatPath, chatBody("a", `,"stream":true`), "X-SLO-E2E-Ms", "60000", "X-SLO-TTFT-Ms", "30000", "X-SLO-Class", "guaranteed", "X-On-Deadline", late)
		r := g.next()
		if r.OnDeadline != want || r.Budget <= 50*time.Second || r.Budget > time.Minute || r.TTFTBudget <= 20*time.Second || r.TTFTBudget > 30*time.Second ||
			r.Class != schema.BestEffort {
			t.Errorf("%q: %+v", late, r.Request)
		}
		short(r)
		s.rest()
	}
	// With a margin that was learned, a guarantee is given.
	for n := 0; g.gauge(t, "cadence_ingress_admission_cold") != 0; n++ {
		if n == 500 {
			t.Fatal("500 answers teach nothing")
		}
		s := g.open(t, chatPath, chatBody("a", `,"stream":true`))
		short(g.next())
		s.rest()
	}
	s := g.open(t, chatPath, chatBody("a", `,"stream":true`), "X-SLO-E2E-Ms", "3600000", "X-SLO-Class", "guaranteed")
	r := g.next()
	if r.Class != schema.Guaranteed {
		t.Errorf("%+v", r.Request)
	}
	short(r)
	s.rest()
	ev := g.event(r.ID, schema.Admitted)
	if ev.Class != schema.Guaranteed || ev.Decision != "bound" || ev.Bound <= 0 || ev.BoundLevel != 0.95 || ev.Predicted <= 0 {
		t.Errorf("%+v", ev.Event)
	}
	m := g.gauges(t)
	if n := m[`cadence_ingress_admission_bounds_total{verdict="held"}`] + m[`cadence_ingress_admission_bounds_total{verdict="missed"}`]; n < 1 {
		t.Errorf("no bound is counted: %v", n)
	}
}

// A pool's model is asked once it is there, and events say which it was.
func TestPoolsModelIsUsed(t *testing.T) {
	t.Parallel()
	g := startStage(t, nil)
	g.serve(short)
	store, err := g.client.Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	digest, err := store.Put(t.Context(), ingress.ModelFile(t, 1, "f", feature.Table()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Point(t.Context(), 0, streams.ModelPointer{Pool: pool, Artifact: digest, Source: "test", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the model in events", func() bool {
		res := g.post(t, chatPath, chatBody("a", ""))
		return g.event(schema.RequestID(res.Header.Get("X-Cadence-Request-Id")), schema.Admitted).Artifact == digest
	})
}

func TestDeadlineHeadersAreValidated(t *testing.T) {
	t.Parallel()
	h := start(t, config())
	for _, c := range [][2]string{{"X-SLO-E2E-Ms", "0"}, {"X-SLO-E2E-Ms", "soon"}, {"X-SLO-TTFT-Ms", "-1"}, {"X-SLO-TTFT-Ms", "0.5"},
		{"X-SLO-TTFT-Ms", "99999999999"}, {"X-SLO-Class", "gold"}, {"X-On-Deadline", "panic"}} {
		res := h.post(t, chatPath, chatBody("a", ""), c[0], c[1])
		if e := res.want(t, 400, "invalid_value"); e.Param != c[0] {
			t.Errorf("%v: %+v", c, e)
		}
	}
}

// Below saturation nobody is refused, with or without an objective that can be met.
func TestBelowSaturationNobodyIsRefused(t *testing.T) {
	t.Parallel()
	g := startStage(t, nil)
	g.serve(short)
	for i, load := range []int{0, 8, 20} {
		g.holds(t, load, 0)
		for j := range 40 {
			var headers []string
			if j%2 == 1 {
				headers = []string{"X-SLO-E2E-Ms", "600000"}
			}
			if res := g.post(t, chatPath, chatBody(fmt.Sprint(i, j), `,"max_tokens":8`), headers...); res.StatusCode != http.StatusOK {
				t.Fatalf("with %d running: %d %s", load, res.StatusCode, res.body)
			}
		}
	}
	if n := g.gauge(t, "cadence_ingress_admission_open"); n != 0 {
		t.Errorf("%v are open", n)
	}
}

// A tenant that holds as much as it may gets 429, others are served.
func TestTenantsHaveLimits(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.MaxTenantOpen = 1
	h := start(t, cfg)
	s := h.open(t, chatPath, chatBody("a", `,"stream":true`), "X-Tenant", "acme")
	first := h.next()
	res := h.post(t, chatPath, chatBody("b", ""), "X-Tenant", "acme")
	if e := res.want(t, 429, "rate_limit_exceeded"); e.Reason != "tenant_limit" || res.Header.Get("Retry-After") == "" || res.Header.Get("X-Cadence-Decision") != "tenant_capacity" {
		t.Errorf("%+v %+v", e, res.Header)
	}
	ev := h.event(schema.RequestID(res.Header.Get("X-Cadence-Request-Id")), schema.Refused)
	if ev.Reason != string(schema.RefusedCapacity) || ev.Decision != "tenant_capacity" {
		t.Errorf("%+v", ev.Event)
	}
	other := h.open(t, chatPath, chatBody("c", `,"stream":true`), "X-Tenant", "beta")
	short(h.next())
	other.rest()
	short(first)
	s.rest()
	h.serve(short)
	eventually(t, "room for acme", func() bool {
		return h.post(t, chatPath, chatBody("d", ""), "X-Tenant", "acme").StatusCode == http.StatusOK
	})
}

// However clients leave, and whatever becomes of their requests, each one that was let in is ended.
func TestEndsAreBalanced(t *testing.T) {
	t.Parallel()
	g := startStage(t, nil)
	g.serve(func(r *run) {
		n := int32(r.ID[len(r.ID)-1]) % 4
		r.tokens(1, 0, n)
		switch r.ID[len(r.ID)-2] % 4 {
		case 0: // it never ends
		case 1:
			r.publish(&schema.Chunk{Attempt: 1, Index: n, Error: &schema.Error{Code: schema.FailedEngine, Message: "x"}})
		default:
			r.finish(1, n, schema.FinishStop)
		}
	})
	const clients, each = 10, 50
	var wg sync.WaitGroup
	for c := range clients {
		rng := rand.New(rand.NewPCG(1, uint64(c)))
		wg.Go(func() {
			for i := range each {
				stream := ""
				if rng.IntN(2) == 0 {
					stream = `,"stream":true`
				}
				conn := g.raw(t, chatPath, chatBody(fmt.Sprint(c, i), stream), "X-SLO-E2E-Ms", strconv.Itoa(1+rng.IntN(100_000)))
				_ = conn.SetReadDeadline(time.Now().Add(time.Duration(1+rng.IntN(30)) * time.Millisecond))
				switch rng.IntN(3) {
				case 0: // it leaves at once
				case 1: // at the first bytes
					_, _ = io.ReadFull(conn, make([]byte, 12))
				default: // after a while
					_, _ = io.Copy(io.Discard, conn)
				}
				conn.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "end of all", func() bool { return g.in.Stats().Open == 0 && g.gauge(t, "cadence_ingress_admission_open") == 0 })
	m := g.gauges(t)
	decided := 0.0
	for name, v := range m {
		var by, outcome string
		if n, _ := fmt.Sscanf(name, `cadence_ingress_admission_decisions_total{decision=%q,outcome=%q}`, &by, &outcome); n == 2 {
			decided += v
		}
	}
	if decided < clients*each/2 {
		t.Errorf("%v decisions", decided)
	}
}
