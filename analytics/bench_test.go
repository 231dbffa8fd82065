package analytics

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/streams/streamstest"
)

// BenchmarkEventBlock decodes events into columns: what each event costs the projector
// before the insert.
//
//	go test ./analytics -run - -bench EventBlock -benchmem
func BenchmarkEventBlock(b *testing.B) {
	var bodies [][]byte
	for _, e := range life(newID(b)) {
		body, err := schema.Encode(e)
		if err != nil {
			b.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	block := newEventBlock("EVENTS@2026-01-01T00:00:00Z")
	at := place{stored: time.Now()}
	for b.Loop() {
		if at.seq%5000 == 0 {
			block.set().truncate()
		}
		if err := block.add(at, bodies[at.seq%uint64(len(bodies))]); err != nil {
			b.Fatal(err)
		}
		at.seq++
	}
}

// BenchmarkStepBlock decodes engine steps into columns.
func BenchmarkStepBlock(b *testing.B) {
	body, err := os.ReadFile(filepath.Join("..", "schema", "testdata", "v1", "step.json"))
	if err != nil {
		b.Fatal(err)
	}
	block := newStepBlock("STEPS@2026-01-01T00:00:00Z")
	at := place{stored: time.Now()}
	for b.Loop() {
		if at.seq%5000 == 0 {
			block.set().truncate()
		}
		if err := block.add(at, body); err != nil {
			b.Fatal(err)
		}
		at.seq++
	}
}

// BenchmarkProject copies stored events from the embedded server into the embedded
// engine: how fast the projector catches up, and what CPU time of this process (NATS
// server and client included) and of the engine an event costs.
//
//	go test ./analytics -run - -bench Project -benchtime 100000x
func BenchmarkProject(b *testing.B) {
	c, conn := streamstest.Start(b).Client(b), migrated(b)
	publish(b, c, (b.N+7)/8*8)
	p := newProjector(b, DefaultProjectorConfig(), c, conn)
	own, engine := cpuTime(b, 0), cpuTime(b, shared.PID())
	b.ResetTimer()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	caughtUp(b, p)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64((cpuTime(b, 0)-own).Nanoseconds())/float64(b.N), "own-cpu-ns/op")
	b.ReportMetric(float64((cpuTime(b, shared.PID())-engine).Nanoseconds())/float64(b.N), "engine-cpu-ns/op")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// cpuTime returns the user and system time of a process; 0 is this one.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	id := int32(unix.CLOCK_PROCESS_CPUTIME_ID)
	if pid != 0 {
		id = int32(^uint32(pid)<<3 | 2) // the kernel's clock id of a process: see clock_getcpuclockid(3)
	}
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
