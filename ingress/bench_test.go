package ingress_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
)

// BenchmarkStreamedRequest measures a short streamed chat (8 tokens) from the client's request to its [DONE], with NATS,
// a scripted pipeline and the clients in the same process. cpu-µs/op is the processor time of all of them.
//
//	go test ./ingress -run - -bench StreamedRequest -benchtime 3s -cpuprofile cpu.out
func BenchmarkStreamedRequest(b *testing.B) {
	benchmarkRequest(b, chatBody(strings.Repeat("word ", 100), `,"stream":true,"max_tokens":8`), []byte("data: [DONE]\n\n"))
}

// BenchmarkWholeRequest is the same without streaming.
func BenchmarkWholeRequest(b *testing.B) {
	benchmarkRequest(b, chatBody(strings.Repeat("word ", 100), `,"max_tokens":8`), []byte(`"usage"`))
}

func benchmarkRequest(b *testing.B, body string, end []byte) {
	cfg := config()
	h := start(b, cfg)
	state := workerState()
	state.Interval = 10 * time.Second // the clients may starve the heartbeats
	h.beat <- state
	h.serve(func(r *run) {
		for i := range int32(8) {
			_ = h.client.PublishChunk(r.Ingress, &schema.Chunk{Request: r.ID, Attempt: 1, Index: i, IDs: schema.Tokens{i}, Text: " token"})
		}
		r.finish(1, 8, schema.FinishLength)
	})
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	var failed atomic.Int64
	b.SetParallelism(16)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", h.in.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		rd := bufio.NewReader(c)
		for pb.Next() {
			if _, err := c.Write(request); err != nil {
				b.Error(err)
				return
			}
			res, err := http.ReadResponse(rd, nil)
			if err != nil {
				b.Error(err)
				return
			}
			out, err := io.ReadAll(res.Body)
			if (err != nil || !bytes.Contains(out, end)) && failed.Add(1) == 1 {
				b.Logf("%s, %v, %.300s", res.Status, err, out)
			}
		}
	})
	b.StopTimer()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/1e3/float64(b.N), "cpu-µs/op")
	if n := failed.Load(); n > 0 {
		b.Errorf("%d answers are not whole", n)
	}
}
