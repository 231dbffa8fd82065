package schema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema/schematest"
)

// TestFoldScenarios runs the stories in testdata/fold. A story is a list of blocks:
//
//	# comment
//	dispatched r1 attempt=1 worker=w1
//	finished r1 attempt=1 worker=w1
//	----
//	what the state is now
//
// A block's lines are events, stored one after the other: the type, then the request (r1, r2, …), worker (w1, …) or
// pool that it is about, then fields. An event is stored at its sequence (override: at=) and has the next sequence
// (override: seq=, for one that is delivered again). "forget before=N" calls ForgetOrphans. go test ./schema -update
// writes what stands below the rules.
func TestFoldScenarios(t *testing.T) {
	schematest.Scenarios(t, "testdata/fold/*.txt", *update, func(t *testing.T, text string) string {
		got, err := runScenario(text)
		if err != nil {
			t.Fatal(err)
		}
		return got
	})
}

// runScenario returns the story with the states that the fold comes to.
func runScenario(text string) (string, error) {
	var out strings.Builder
	s := NewState()
	seq := uint64(0)
	told := false // below the rule of a block, where the old state stands
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "----":
			told = true
			out.WriteString("----\n")
			for _, l := range dump(s) {
				out.WriteString(l + "\n")
			}
			continue
		case line == "":
			told = false
		case told:
			continue
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "forget before="):
			before, err := strconv.ParseInt(strings.TrimPrefix(line, "forget before="), 10, 64)
			if err != nil {
				return "", fmt.Errorf("line %d: %w", i+1, err)
			}
			s.ForgetOrphans(before)
		default:
			seq++
			e, err := parseEvent(line, seq)
			if err != nil {
				return "", fmt.Errorf("line %d: %w", i+1, err)
			}
			seq = max(seq, e.Seq)
			s.Apply(e)
		}
		out.WriteString(line + "\n")
	}
	return out.String(), nil
}

func scenarioID(name string) (RequestID, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "r"))
	return RequestID(fmt.Sprintf("00000000-0000-7000-8000-%012d", n)), err
}

func scenarioName(id RequestID) string { return "r" + strings.TrimLeft(string(id)[24:], "0") }

// parseEvent reads a line of a scenario. The event obeys the rules of its type.
func parseEvent(line string, seq uint64) (*Stored, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return nil, errors.New("want a type and a subject")
	}
	typ, subject := Type(words[0]), words[1]
	reason := map[Type]string{
		Refused: "capacity", Finished: "stop", Failed: "engine_error", CancelRequested: "disconnect", Cancelled: "disconnect",
		Delivered: "complete", WorkerDown: "lost",
	}
	e := &Stored{Seq: seq, Event: Event{V: 1, Type: typ, Time: 1, Source: "test", Pool: "default", Reason: reason[typ]}}
	switch typ {
	case WorkerUp, WorkerDown:
		e.Worker = WorkerID(subject)
	case Epoch:
		e.Pool = subject
	default:
		id, err := scenarioID(subject)
		if err != nil {
			return nil, err
		}
		e.Request, e.Tenant, e.Ingress = id, "acme", "ing-1"
		if typ == Accepted || typ == Admitted {
			n, err := strconv.ParseUint(string(id[24:]), 10, 64)
			if err != nil {
				return nil, err
			}
			e.RequestSeq = 100 + n
		}
	}
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "attempt":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 32)
			e.Attempt = uint32(n)
		case "worker":
			e.Worker = WorkerID(value)
		case "pool":
			e.Pool = value
		case "reason":
			e.Reason = value
		case "budget":
			e.Budget, err = time.ParseDuration(value)
		case "resume":
			for id := range strings.SplitSeq(value, ",") {
				var n int64
				if n, err = strconv.ParseInt(id, 10, 32); err != nil {
					break
				}
				e.Resume = append(e.Resume, int32(n))
			}
		case "seq":
			e.Seq, err = strconv.ParseUint(value, 10, 64)
		case "at":
			e.StoredAt, err = strconv.ParseInt(value, 10, 64)
		default:
			err = fmt.Errorf("unknown field %q", word)
		}
		if err != nil {
			return nil, err
		}
	}
	if e.StoredAt == 0 {
		e.StoredAt = int64(e.Seq)
	}
	return e, e.Validate()
}

var phaseNames = map[Phase]string{PhaseUnknown: "unknown", PhaseQueued: "queued", PhaseDispatched: "dispatched", PhaseLost: "lost"}

// dump shows a state, a line each for the pools' epochs and highest accepted requests, workers that are up, requests,
// and what has settled. An @ comes before a store time.
func dump(s *State) (lines []string) {
	list := func(what string, words []string) {
		if len(words) > 0 {
			lines = append(lines, what+" "+strings.Join(words, " "))
		}
	}
	var pools, taken, up, settled []string
	for _, pool := range slices.Sorted(maps.Keys(s.Epoch)) {
		pools = append(pools, fmt.Sprintf("%s=%d", pool, s.Epoch[pool]))
	}
	list("epoch", pools)
	for _, pool := range slices.Sorted(maps.Keys(s.RequestSeq)) {
		taken = append(taken, fmt.Sprintf("%s=%d", pool, s.RequestSeq[pool]))
	}
	list("taken", taken)
	for _, id := range slices.Sorted(maps.Keys(s.Workers)) {
		w := s.Workers[id]
		up = append(up, fmt.Sprintf("%s@%d", w.ID, w.UpAt))
	}
	list("up", up)
	for _, id := range slices.Sorted(maps.Keys(s.Requests)) {
		r := s.Requests[id]
		line := scenarioName(r.ID) + " " + phaseNames[r.Phase]
		if r.RequestSeq != 0 {
			line += fmt.Sprintf(" seq=%d accepted@%d", r.RequestSeq, r.AcceptedAt)
		}
		if r.Budget != 0 {
			line += fmt.Sprintf(" budget=%v", r.Budget)
		}
		if r.Attempt != 0 {
			line += fmt.Sprintf(" attempt=%d worker=%s", r.Attempt, r.Worker)
		}
		if len(r.Resume) > 0 {
			line += fmt.Sprintf(" resume=%v", r.Resume)
		}
		if r.Cancel != "" {
			line += fmt.Sprintf(" cancel=%s@%d", r.Cancel, r.CancelAt)
		}
		lines = append(lines, line)
	}
	for _, id := range slices.Sorted(maps.Keys(s.settled.ids)) {
		settled = append(settled, scenarioName(id))
	}
	list("settled", settled)
	if len(lines) == 0 {
		return []string{"nothing"}
	}
	return lines
}

// TestTombstonesAreBounded settles more requests than a state remembers: the latest are known, the rest forgotten, and
// nothing grows.
func TestTombstonesAreBounded(t *testing.T) {
	const extra = 1000
	s := NewState()
	id := func(i int) RequestID { return RequestID(fmt.Sprintf("%08x-0000-7000-8000-000000000000", i)) }
	for i := range 2*tombstones + extra {
		e := Event{Type: Accepted, Request: id(i), Pool: "default", RequestSeq: uint64(i + 1)}
		s.Apply(&Stored{Event: e, Seq: s.Seq + 1})
		e.Type = Finished
		s.Apply(&Stored{Event: e, Seq: s.Seq + 1})
		if len(s.settled.ids) > tombstones || len(s.settled.ring) > tombstones || cap(s.settled.ring) > 2*tombstones {
			t.Fatalf("after %d: %d tombstones in a ring of %d", i+1, len(s.settled.ids), cap(s.settled.ring))
		}
	}
	for i := range 2*tombstones + extra {
		if got, want := s.Settled(id(i)), i >= tombstones+extra; got != want {
			t.Fatalf("request %d: settled %v, want %v", i, got, want)
		}
	}
	if len(s.Requests) != 0 {
		t.Errorf("%d requests are unfinished", len(s.Requests))
	}
}

// A state that folds for years does not remember every worker that there was.
func TestFoldForgetsOldWorkers(t *testing.T) {
	s := NewState()
	for n := range uint64(tombstones + 2) {
		s.Apply(&Stored{Seq: n + 1, Event: Event{Type: WorkerDown, Worker: WorkerID(strconv.FormatUint(n, 10))}})
	}
	if s.Down("1") || !s.Down("2") || !s.Down(WorkerID(strconv.Itoa(tombstones+1))) || len(s.down.ids) != tombstones {
		t.Errorf("%d remembered", len(s.down.ids))
	}
}
