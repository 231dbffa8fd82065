package ingress

import (
	"io"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/ingress/openai"
	"github.com/cadence-slo/cadence/schema"
)

// BenchmarkRelay puts one token into an answer and writes its event, as the subscription and the connection do, without
// sockets and NATS.
//
//	go test ./ingress -run - -bench Relay
func BenchmarkRelay(b *testing.B) {
	cfg := DefaultConfig()
	s := &Server{cfg: cfg, gate: gateOf(1, 1, 1), desk: testDesk(b), relay: newRelay(), born: time.Now()}
	a := &answer{call: call{kind: schema.KindChat, stream: true, arrived: time.Now()}}
	a.head = openai.Head{Kind: a.kind, Request: "0199c5d2-7a31-7c4e-9b1a-2f6d5e8c1a01", Model: "m", Created: a.arrived}
	w := &body{s: s, encoder: openai.NewStream(a.head, false), woken: make(chan struct{}, 1)}
	if e := a.attach(w, 0); e != nil {
		b.Fatal(e)
	}
	c := &schema.Chunk{Attempt: 1, IDs: schema.Tokens{7}, Text: " token"}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		c.Index = int32(len(a.ids))
		s.accept(a, c)
		t := w.take()
		buf = buf[:0]
		for i, text := range t.texts {
			buf = w.encoder.AppendText(buf, t.first+int64(i), text.text)
		}
		_, _ = io.Discard.Write(buf)
		if len(a.ids) == 1<<16 {
			a.ids = a.ids[:0]
		}
	}
}
