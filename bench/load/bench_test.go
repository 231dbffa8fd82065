package load

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStream reads streamed answers of 8 tokens that come in one piece: go test -bench Stream ./bench/load. The
// server's share is in cpu-ns/op too; it writes bytes made beforehand.
func BenchmarkStream(b *testing.B) { benchmarkStream(b, false) }

// BenchmarkStreamPieces has each token written by itself.
func BenchmarkStreamPieces(b *testing.B) { benchmarkStream(b, true) }

func benchmarkStream(b *testing.B, pieces bool) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	event := func(n int, choice string) string {
		return fmt.Sprintf("id: 01920000-0000-7000-8000-000000000000/%d\ndata: {\"id\":\"chatcmpl-01920000-0000-7000-8000-000000000000\","+
			"\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[%s],\"usage\":null}\n\n", n, choice)
	}
	events := []string{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"}
	add := func(s string) { events = append(events, fmt.Sprintf("%x\r\n%s\r\n", len(s), s)) }
	for i := range 8 {
		add(event(i, `{"index":0,"delta":{"content":" token"},"finish_reason":null}`))
	}
	add(event(8, `{"index":0,"delta":{},"finish_reason":"length"}`))
	add("data: [DONE]\n\n")
	events = append(events, "0\r\n\r\n")
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		whole := []byte(strings.Join(events, ""))
		in := make([]byte, 64<<10)
		for {
			n, err := c.Read(in)
			if err != nil {
				return
			}
			if !bytes.HasSuffix(in[:n], []byte("}")) {
				continue
			}
			if !pieces {
				if _, err := c.Write(whole); err != nil {
					return
				}
				continue
			}
			for _, e := range events {
				if _, err := c.Write([]byte(e)); err != nil {
					return
				}
			}
		}
	}()
	cfg := DefaultClientConfig()
	cfg.URL = "http://" + l.Addr().String()
	c, err := NewClient(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	req := &Request{Path: "/v1/chat/completions", ClientID: "bench-1", Body: []byte(`{"prompt":"` + strings.Repeat("word ", 500) + `"}`)}
	b.ReportAllocs()
	begin := cpuTime(b)
	for b.Loop() {
		if r := c.Do(b.Context(), req); r.Outcome != OK || r.TextEvents != 8 {
			b.Fatalf("%+v", r)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N), "cpu-ns/op")
}
