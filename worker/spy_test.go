package worker_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

var discard = slog.New(slog.DiscardHandler)

func registry() *prometheus.Registry { return prometheus.NewRegistry() }

// spy calls saw for every message published on the server, in the order of the wire.
func spy(t testing.TB, url string, saw func(subject string)) {
	t.Helper()
	listen(t, url, ">", func(m *nats.Msg) {
		if !strings.HasPrefix(m.Reply, "$JS.ACK.") { // not what a stream delivers
			saw(m.Subject)
		}
	})
}

func spyBodies(t testing.TB, url, subject string, saw func(body []byte)) {
	t.Helper()
	listen(t, url, subject, func(m *nats.Msg) { saw(m.Data) })
}

func listen(t testing.TB, url, subject string, handle nats.MsgHandler) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe(subject, handle); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}
