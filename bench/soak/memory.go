package soak

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Sample is what the process holds at a quiet point.
type Sample struct {
	At         time.Duration `json:"at_ns"` // since the load began
	Heap       int64         `json:"heap_bytes"`
	RSS        int64         `json:"rss_bytes"`       // 0 where the system does not tell
	Outside    int64         `json:"outside_bytes"`   // of RSS, not Go's: llama.cpp, stacks of threads, the program itself
	Goroutines int           `json:"goroutines"`      // see Goroutines
	Requests   int64         `json:"requests"`        // so far
	Cached     int64         `json:"cached_pages"`    // of the prefix cache
	Steps      int64         `json:"steps"`           // so far
	Preempted  int64         `json:"preemptions"`     // so far
	Evicted    int64         `json:"evictions"`       // so far
	Collection time.Duration `json:"measured_for_ns"` // time that the pause took
}

// measure collects garbage and reads what is left.
func measure() Sample {
	runtime.GC() // finalizers of the first make garbage for the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := Sample{Heap: int64(m.HeapAlloc), RSS: rss(), Goroutines: goroutines()}
	if s.RSS > 0 {
		s.Outside = s.RSS - int64(m.Sys-m.HeapReleased)
	}
	return s
}

// rss is the process's resident memory, or 0.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// ackWatcher is a goroutine of nats.go's that may outlive its connection: the news that it waits for is dropped when it
// is busy with the news before.
const ackWatcher = "resetPendingAcksOnReconnect"

// goroutines counts them, but for nats.go's that stay.
func goroutines() int {
	n := 0
	for _, one := range stacks() {
		if !bytes.Contains(one, []byte(ackWatcher)) {
			n++
		}
	}
	return n
}

// stacks lists the stack of every goroutine.
func stacks() [][]byte {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return bytes.Split(buf[:n], []byte("\n\n"))
		}
		buf = make([]byte, 2*len(buf))
	}
}

// settle waits for goroutines that are on their way out.
func settle(most int, patience time.Duration) int {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	n := goroutines()
	for end := time.Now().Add(patience); n > most && time.Now().Before(end); n = goroutines() {
		<-tick.C
	}
	return n
}

// slope is the least-squares slope of y over x, in y's units a second; 0 for fewer than two points.
func slope(x []time.Duration, y []int64) float64 {
	n := float64(len(x))
	var mx, my float64
	for i := range x {
		mx += x[i].Seconds() / n
		my += float64(y[i]) / n
	}
	var xy, xx float64
	for i := range x {
		dx := x[i].Seconds() - mx
		xy += dx * (float64(y[i]) - my)
		xx += dx * dx
	}
	if xx == 0 {
		return 0
	}
	return xy / xx
}
