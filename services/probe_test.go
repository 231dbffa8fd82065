package services

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestProbe(t *testing.T) {
	status := http.StatusOK
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			<-hang
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	defer close(hang)
	if code, out, errOut := run("probe", server.URL+"/ready"); code != 0 || out+errOut != "" {
		t.Errorf("%d, %s%s", code, out, errOut)
	}
	if code, _, errOut := run("probe", server.URL+"/hangs", "--timeout", "20ms"); code != 1 || !strings.Contains(errOut, "deadline") {
		t.Errorf("%d, %s", code, errOut)
	}
	status = http.StatusServiceUnavailable
	if code, _, errOut := run("probe", server.URL+"/ready"); code != 1 || !strings.Contains(errOut, "503") {
		t.Errorf("%d, %s", code, errOut)
	}
	if code, _, errOut := run("probe", "127.0.0.1"); code != 1 || errOut == "" {
		t.Errorf("%d, %s", code, errOut)
	}
}
