package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/analytics"
	"github.com/cadence-slo/cadence/analytics/sql"
	"github.com/cadence-slo/cadence/predictor/artifact"
	"github.com/cadence-slo/cadence/predictor/feature"
	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams"
	"github.com/cadence-slo/cadence/streams/streamstest"
	"github.com/cadence-slo/cadence/trainer"
	"github.com/cadence-slo/cadence/trainer/trainertest"
)

// ClickHouse, the stream and a log give the same traces, and the view's run and round are the default ones.
func TestSourcesGiveTheSameTraces(t *testing.T) {
	p, from := newPool(t), start()
	events := append(trainertest.Rounds(t, from, 0, 2, 1), &schema.Event{Type: schema.Admitted, Time: from.UnixNano(), Source: "test", Pool: "q", Tenant: "t", Ingress: "i",
		RequestSeq: 1, Request: "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01", Features: []float32{1}})
	p.store(t, events)
	conn := p.projected(t)
	log := Log{Read: func(add func(*schema.Stored) error) error {
		for i, e := range events {
			if err := add(&schema.Stored{Event: *e, Seq: uint64(i + 1)}); err != nil {
				return err
			}
		}
		return nil
	}}
	read := func(s Source, since time.Time) map[schema.RequestID]string {
		got := map[schema.RequestID]string{}
		if err := s.Traces(t.Context(), "p", since, func(x *trainer.Trace) error {
			got[x.Request] = fmt.Sprintf("%+v", *x)
			return nil
		}); err != nil {
			t.Fatalf("%s: %v", s.Name(), err)
		}
		return got
	}
	for _, since := range []time.Time{from.Add(-time.Hour), from.Add(10 * time.Minute)} {
		want := read(log, since)
		if n := len(want); n != 2*perRound && n != perRound {
			t.Fatalf("%d traces", n)
		}
		for _, s := range []Source{Stream{p.client}, ClickHouse{conn}} {
			got := read(s, since)
			if len(got) != len(want) {
				t.Errorf("%s: %d traces, want %d", s.Name(), len(got), len(want))
			}
			for id, w := range want {
				if got[id] != w {
					t.Fatalf("%s:\ngot  %s\nwant %s", s.Name(), got[id], w)
				}
			}
		}
	}

	byID := map[schema.RequestID]trainer.Row{}
	if err := log.Traces(t.Context(), "p", time.Time{}, func(x *trainer.Trace) error {
		if row, err := x.Row(trainer.DefaultRounding()); err == nil {
			byID[x.Request] = row
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), "SELECT toString(request_id), run, round, censored FROM traces")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	n := 0
	for rows.Next() {
		var id string
		var run, round int64
		var censored bool
		if err := rows.Scan(&id, &run, &round, &censored); err != nil {
			t.Fatal(err)
		}
		row, ok := byID[schema.RequestID(id)]
		if !ok {
			continue // failed for another reason than time
		}
		n++
		if int64(row.Run) != run || int64(row.Round) != round || row.Censored != censored {
			t.Fatalf("the view has run %d, round %d, %v, the row %d, %d, %v", run, round, censored, row.Run, row.Round, row.Censored)
		}
	}
	if n != 2*perRound-8 {
		t.Errorf("%d rows of the view compared", n)
	}
	if _, err := sql.Lookup("trace_rounds"); err != nil {
		t.Fatal(err)
	}
	named, err := analytics.NewQuerier(conn).Named(t.Context(), "trace_rounds", nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	found := 0
	for named.Next() {
		found++
	}
	if found != 2 || named.Err() != nil {
		t.Errorf("trace_rounds shows %d rounds: %v", found, named.Err())
	}
}

// The whole way on ClickHouse: a first model is published, and who watches the pool sees a file that it can use; a worse one is rejected,
// and the pointer stays; back and forth along the history; the event log tells all of it.
func TestTrainPublishRejectRollBack(t *testing.T) {
	p, from := newPool(t), start()
	seen := make(chan streams.ModelPointer, 16)
	stop, err := p.models.Watch(t.Context(), "p", func(x streams.ModelPointer) { seen <- x })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	p.store(t, trainertest.Rounds(t, from, 0, 4, 1))
	s := p.service(t, func(o *Options) { o.Source = ClickHouse{p.projected(t)} })

	// A trial leaves no trace.
	tried, file, err := s.Train(t.Context(), true)
	if err != nil || !tried.Swap || tried.Published || p.current(t).Revision != 0 || len(p.changes(t)) != 0 {
		t.Fatalf("tried: %+v, %v", tried, err)
	}
	if artifact.Digest(file) != tried.Artifact || len(file) != tried.Bytes {
		t.Error("the file is not what the report names")
	}
	first, _, err := s.Train(t.Context(), false)
	if err != nil || !first.Published || first.Reason != trainer.First || first.Rounds != 4 || first.Rows != 4*perRound-16 || first.Censored != 16 {
		t.Fatalf("first: %+v, %v", first, err)
	}
	if first.Skipped["failed for another reason than time"] != 16 || first.Fingerprint != fingerprint || first.Champion != "" || first.Source != "clickhouse" {
		t.Errorf("first: %+v", first)
	}
	if first.Error > 0.6*first.PhysicsError {
		t.Errorf("it is off by %.3f, the physics by %.3f", first.Error, first.PhysicsError)
	}
	at := streamstest.Receive(t, seen)
	if at.Artifact != first.Artifact || at.Source != "trainer-1" || at.Reason != string(trainer.First) {
		t.Fatalf("seen: %+v", at)
	}
	got, err := p.models.Get(t.Context(), at.Artifact)
	if err != nil {
		t.Fatal(err)
	}
	a, err := artifact.Decode(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Header.Compatible(fingerprint, feature.Table()); err != nil {
		t.Error(err)
	}
	for _, g := range a.Calibration.Supported.Groups {
		if g.Group.Class != 0 {
			t.Errorf("a group of class %d", g.Group.Class)
		}
	}
	if n := len(a.Lengths.Classes); n != 1 || a.Lengths.Classes[0].Risk[0] < 1000 {
		t.Errorf("lengths of %d classes", n)
	}

	// Rounds 4 to 6, which are learned from, scatter; 7, which is held out, does not. (3 was held out then and is now.)
	p.store(t, trainertest.Rounds(t, from, 4, 3, 3))
	p.store(t, trainertest.Round(t, from, 7, perRound, 1))
	s.Source = Stream{p.client}
	worse, _, err := s.Train(t.Context(), false)
	if err != nil || worse.Published || worse.Swap || worse.Reason != trainer.Wider || worse.Champion != first.Artifact || worse.Compared != worse.Test || worse.Running == nil {
		t.Fatalf("worse: %+v, %v", worse, err)
	}
	if now := p.current(t); now.Artifact != first.Artifact || now.Revision != at.Revision {
		t.Errorf("the pointer has moved to %+v", now)
	}
	if _, err := p.models.Get(t.Context(), worse.Artifact); !errors.Is(err, streams.ErrNoModel) {
		t.Errorf("the rejected file: %v", err)
	}

	// At another level the running model says nothing.
	s.Config.Level = 0.8
	second, _, err := s.Train(t.Context(), false)
	if err != nil || !second.Published || second.Reason != trainer.NotWorse || second.Artifact == first.Artifact {
		t.Fatalf("second: %+v, %v", second, err)
	}
	if x := streamstest.Receive(t, seen); x.Artifact != second.Artifact {
		t.Fatalf("seen: %+v", x)
	}

	back := func(to, want string) {
		t.Helper()
		was := p.current(t).Artifact
		from, is, err := Rollback(t.Context(), p.client, p.models, "p", to, "operator", "", time.Now())
		if err != nil || from.Artifact != was || is.Artifact != want {
			t.Fatalf("back to %q: %+v, %v", to, is, err)
		}
		if x := streamstest.Receive(t, seen); x.Artifact != want || x.Source != "operator" {
			t.Fatalf("seen: %+v", x)
		}
	}
	back("", first.Artifact)
	back(second.Artifact[:8], second.Artifact)
	back(None, "")
	back("", second.Artifact)
	for _, to := range []string{"current", worse.Artifact[:12], second.Artifact[:5], "xyz"} {
		if _, _, err := Rollback(t.Context(), p.client, p.models, "p", to, "operator", "", time.Now()); !errors.Is(err, ErrModel) {
			t.Errorf("back to %q: %v", to, err)
		}
	}
	if _, _, err := Rollback(t.Context(), p.client, p.models, "q", "", "operator", "", time.Now()); !errors.Is(err, ErrModel) {
		t.Errorf("of a pool without models: %v", err)
	}

	var told []string
	for _, e := range p.changes(t) {
		told = append(told, strings.TrimPrefix(string(e.Type), "model_")+" "+e.Artifact)
		if e.Pool != "p" || e.Reason == "" || e.Message == "" {
			t.Errorf("%+v", e)
		}
	}
	want := []string{"published " + first.Artifact, "rejected " + worse.Artifact, "published " + second.Artifact, "rolled_back " + first.Artifact,
		"rolled_back " + second.Artifact, "rolled_back ", "rolled_back " + second.Artifact}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

// Whoever dies before the pointer has moved leaves the old one, and one who dies after leaves the new one; the next run goes on from there.
func TestDeathLeavesTheOldPointerOrTheNewOne(t *testing.T) {
	p, from := newPool(t), start()
	p.store(t, trainertest.Rounds(t, from, 0, 4, 1))
	died := errors.New("died")
	for i, point := range []string{"made", "stored", "moved"} {
		s := p.service(t, nil)
		s.reached = func(at string) error {
			if at == point {
				return died
			}
			return nil
		}
		r, _, err := s.Train(t.Context(), false)
		if !errors.Is(err, died) || r == nil || r.Published {
			t.Fatalf("%s: %+v, %v", point, r, err)
		}
		now := p.current(t)
		if moved := now.Artifact == r.Artifact; moved != (point == "moved") || !moved && now.Revision != 0 {
			t.Fatalf("%s: the pointer is %+v", point, now)
		}
		if _, err := p.models.Get(t.Context(), r.Artifact); errors.Is(err, streams.ErrNoModel) != (i == 0) {
			t.Errorf("%s: the file: %v", point, err)
		}
	}
	if n := len(p.changes(t)); n != 0 {
		t.Errorf("%d events", n)
	}
	// All of its rows were seen but the held-out round's.
	s := p.service(t, nil)
	again, _, err := s.Train(t.Context(), false)
	if err != nil || again.Champion == "" || again.Compared != again.Test {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// Of two that trained at once one publishes, and so it is with an operator between reading and publishing.
func TestOnlyOneMovesThePointer(t *testing.T) {
	p, from := newPool(t), start()
	p.store(t, trainertest.Rounds(t, from, 0, 4, 1))
	s := p.service(t, nil)
	s.reached = func(at string) error {
		if at == "stored" {
			_, err := p.models.Point(t.Context(), 0, streams.ModelPointer{Pool: "p", Source: "operator", Reason: "by hand"})
			return err
		}
		return nil
	}
	r, _, err := s.Train(t.Context(), false)
	if !errors.Is(err, streams.ErrModelMoved) || r.Published || p.current(t).Source != "operator" {
		t.Errorf("%+v, %v; the pointer is %+v", r, err, p.current(t))
	}
}

// What is missing is said: rows, rounds, a profile.
func TestTrainSaysWhatIsMissing(t *testing.T) {
	p, from := newPool(t), start()
	s := p.service(t, func(o *Options) { o.Config.Profile, o.Config.ProfileWait = "", 30*time.Second })
	if _, _, err := s.Train(t.Context(), false); !errors.Is(err, trainer.ErrEngine) {
		t.Errorf("no rows: %v", err)
	}
	p.store(t, trainertest.Rounds(t, from, 0, 3, 1))
	if _, _, err := s.Train(t.Context(), false); !errors.Is(err, trainer.ErrRounds) || !strings.Contains(err.Error(), "are of 3 rounds of 10 minutes, it takes 4") {
		t.Errorf("few rounds: %v", err)
	}
	p.store(t, trainertest.Round(t, from, 3, perRound, 1))
	s.Config.ProfileWait = 0
	if _, _, err := s.Train(t.Context(), false); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), fingerprint) {
		t.Errorf("no profile: %v", err)
	}
	// A worker of another engine is not believed; one of this is, also when it comes later.
	s.Config.ProfileWait = time.Minute
	for _, f := range []string{"other/1", fingerprint} {
		state := &schema.EngineState{Worker: "w1", Pool: "p", Model: "m", Settings: &schema.EngineSettings{Fingerprint: f, Profile: json.RawMessage(mockProfile(t)),
			Plan: json.RawMessage(`{}`)}}
		if f != fingerprint {
			if err := p.client.PublishEngineState(state); err != nil {
				t.Fatal(err)
			}
			continue
		}
		done := make(chan error, 1)
		go func() {
			r, _, err := s.Train(t.Context(), false)
			if err == nil && (r.Profile != "mock" || !r.Published) {
				err = fmt.Errorf("%+v", r)
			}
			done <- err
		}()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
				tick.Stop()
			case <-tick.C:
				if err := p.client.PublishEngineState(state); err != nil {
					t.Fatal(err)
				}
				continue
			}
			break
		}
	}
	s.Config.Fingerprint = "another"
	if _, _, err := s.Train(t.Context(), false); !errors.Is(err, trainer.ErrEngine) || !strings.Contains(err.Error(), "of another engine") {
		t.Errorf("another engine: %v", err)
	}
}

// The service trains when enough is new, not again for the same, and stops when it is told to.
func TestRunTrainsOnWhatIsNew(t *testing.T) {
	p, from := newPool(t), start()
	s := p.service(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	schedule := DefaultSchedule()
	schedule.Interval, schedule.MinNew = time.Second, 3*perRound
	if err := p.service(t, func(o *Options) { o.Models = nil }).Run(ctx, schedule); !errors.Is(err, ErrConfig) {
		t.Errorf("without a store: %v", err)
	}
	seen := make(chan streams.ModelPointer, 16)
	stop, err := p.models.Watch(t.Context(), "p", func(x streams.ModelPointer) { seen <- x })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	go func() { done <- s.Run(ctx, schedule) }()
	p.store(t, trainertest.Rounds(t, from, 0, 4, 1))
	first := streamstest.Receive(t, seen)
	p.store(t, trainertest.Rounds(t, from, 4, 4, 1))
	second := streamstest.Receive(t, seen)
	if second.Artifact == first.Artifact {
		t.Error("the same")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	published := 0
	for _, e := range p.changes(t) {
		if e.Type == schema.ModelPublished {
			published++
		}
	}
	if published != 2 {
		t.Errorf("published %d times", published)
	}
	schedule.MinNew = 0
	if err := s.Run(t.Context(), schedule); !errors.Is(err, ErrConfig) {
		t.Errorf("a schedule that cannot be: %v", err)
	}
}

// Equal traces make the same file, whatever they come from: the log of events that a stream was exported to trains what the stream trains.
func TestTrainFromALog(t *testing.T) {
	p, from := newPool(t), start()
	events := trainertest.Rounds(t, from, 0, 4, 1)
	p.store(t, events)
	clock := func() time.Time { return from.Add(time.Hour) }
	s := p.service(t, nil)
	s.clock = clock
	_, want, err := s.Train(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	offline := p.service(t, func(o *Options) {
		o.Client, o.Models = nil, nil
		o.Source = Log{Read: func(add func(*schema.Stored) error) error {
			for _, e := range events {
				if err := add(&schema.Stored{Event: *e}); err != nil {
					return err
				}
			}
			return nil
		}}
	})
	offline.clock = clock
	r, got, err := offline.Train(t.Context(), false)
	if err != nil || r.Published || !r.Swap {
		t.Fatalf("%+v, %v", r, err)
	}
	if !bytes.Equal(got, want) {
		t.Error("two files")
	}
	champion, err := artifact.Decode(got)
	if err != nil {
		t.Fatal(err)
	}
	offline.Champion = champion
	if r, _, err := offline.Train(t.Context(), false); err != nil || r.Running == nil || math.Abs(r.Width-1) > 1e-9 {
		t.Errorf("compared with itself: %+v, %v", r, err)
	}
}

func TestConfigValidate(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(*Config){
		"pool":         func(c *Config) { c.Pool = "a b" },
		"window":       func(c *Config) { c.Window = time.Second },
		"level":        func(c *Config) { c.Level = 1 },
		"profile_wait": func(c *Config) { c.ProfileWait = -1 },
		"min_rows":     func(c *Config) { c.MinRows = 0 },
		"rows":         func(c *Config) { c.PerStratum = 0 },
		"minutes":      func(c *Config) { c.RoundMinutes = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key, change := range map[string]func(*Schedule){
		"interval":   func(s *Schedule) { s.Interval = 0 },
		"min_new":    func(s *Schedule) { s.MinNew = 0 },
		"keep_files": func(s *Schedule) { s.KeepFiles = 0 },
	} {
		s := DefaultSchedule()
		change(&s)
		if err := s.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
