package ingress

import (
	"strings"
	"testing"
)

// What a client calls its request is echoed and logged: it can be neither another header nor another line.
func TestCleanID(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"mine/1":                         "mine/1",
		"a\r\nSet-Cookie: b":             "aSet-Cookie:b",
		"a\tb\x00c\x7fd\x1b[31me":        "abcd[31me",
		"\xff\xfe汉é!":                    "!",
		"\u2028x\u0085y":                 "xy",
		strings.Repeat("x", 1000):        strings.Repeat("x", maxClientID),
		strings.Repeat("汉", maxClientID): "",
	} {
		if got := cleanID(in); got != want {
			t.Errorf("%.40q became %q", in, got)
		}
	}
}
