package clickhouse

import (
	"errors"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

func TestParseDSN(t *testing.T) {
	for _, test := range []struct {
		dsn, addr, database string
		protocol            ch.Protocol
		tls                 bool
	}{
		{"http://localhost", "localhost:8123", "cadence", ch.HTTP, false},
		{"http://u:p@h:1/db?max_threads=2", "h:1", "db", ch.HTTP, false},
		{"https://u:p@h/db", "h:8443", "db", ch.HTTP, true},
		{"clickhouse://h/db", "h:9000", "db", ch.Native, false},
		{"clickhouse://h/db?secure=true", "h:9440", "db", ch.Native, true},
		{"http://[::1]/", "[::1]:8123", "cadence", ch.HTTP, false},
	} {
		o, err := parseDSN(test.dsn)
		if err != nil {
			t.Errorf("%s: %v", test.dsn, err)
			continue
		}
		if o.Addr[0] != test.addr || o.Auth.Database != test.database || o.Protocol != test.protocol || (o.TLS != nil) != test.tls {
			t.Errorf("%s: %v %s %v tls=%v", test.dsn, o.Addr, o.Auth.Database, o.Protocol, o.TLS != nil)
		}
		if o.Settings["async_insert"] != 0 || o.Settings["session_timezone"] != "UTC" {
			t.Errorf("%s: settings %v", test.dsn, o.Settings)
		}
	}
	for _, dsn := range []string{"", "localhost:9000", "ftp://h", "http://", "http://u:se%zzcret@h", "http://u:secret@h?dial_timeout=x"} {
		_, err := parseDSN(dsn)
		if !errors.Is(err, ErrDSN) {
			t.Errorf("%q: err = %v", dsn, err)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: password in %q", dsn, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	s := startServer(t, testOptions(t))
	if _, err := Open(t.Context(), "http://u:secret@127.0.0.1:1/x"); !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := Open(t.Context(), s.DSN()); !IsUnknownDatabase(err) {
		t.Errorf("no database: %v", err)
	}
	wrong := strings.Replace(s.DSN(), s.credentials.owner, "guess", 1)
	if _, err := Open(t.Context(), wrong, CreateDatabase()); err == nil || !strings.Contains(err.Error(), "Authentication failed") {
		t.Errorf("wrong password: %v", err)
	}
}

// Stored and printed times must not depend on where the server thinks it is.
func TestSessionIsUTCOnBothProtocols(t *testing.T) {
	o := testOptions(t)
	o.NativeTCP = true
	s := startServer(t, o)
	native := strings.Replace(strings.Replace(s.DSN(), "http://", "clickhouse://", 1), s.Addr(), s.NativeAddr(), 1)
	for _, dsn := range []string{s.DSN(), native} {
		conn, err := Open(t.Context(), dsn, CreateDatabase())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var zone string
		var async bool
		var at time.Time
		if err := conn.QueryRow(t.Context(), "SELECT timezone(), toBool(getSetting('async_insert')), toDateTime64('2026-04-05 01:45:00.123456789', 9)").Scan(&zone, &async, &at); err != nil {
			t.Fatal(err)
		}
		if want := time.Date(2026, 4, 5, 1, 45, 0, 123456789, time.UTC); zone != "UTC" || async || !at.Equal(want) {
			t.Errorf("%s: zone %s, async %v, at %v", dsn[:10], zone, async, at)
		}
	}
}
