package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// rawServer answers the n-th connection's requests with what answer returns for them, byte for byte; an answer that
// ends in "<close>" is followed by the end of the connection, "<hang>" by silence.
func rawServer(t *testing.T, answer func(conn, request int, r *http.Request) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				r := bufio.NewReader(c)
				for i := 0; ; i++ {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return
					}
					text, closed := strings.CutSuffix(answer(n, i, req), "<close>")
					text, hang := strings.CutSuffix(text, "<hang>")
					if _, err := io.WriteString(c, text); err != nil {
						return
					}
					if closed {
						c.Close()
						return
					}
					if hang {
						<-t.Context().Done()
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func newClient(t *testing.T, url string, change func(*ClientConfig)) *Client {
	t.Helper()
	cfg := DefaultClientConfig()
	cfg.URL, cfg.KeepText, cfg.KeepEventIDs, cfg.Timeout = url, true, true, 10*time.Second
	if change != nil {
		change(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func chunked(body string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\nX-Cadence-Request-ID: inner\r\n\r\n")
	for len(body) > 0 {
		n := min(len(body), 7) // across fields and events
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

const (
	role   = "id: r/0\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n"
	textA  = "id: r/1\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\u00e9\"},\"finish_reason\":null}],\"usage\":null}\n\n"
	textB  = ": ping\n\nid: r/2\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\"finish_reason\":null}],\"usage\":null}\n\n"
	finish = "id: r/3\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":null}\n\n"
	usage  = "id: r/4\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\n"
	broken = "id: r/2\ndata: {\"error\":{\"message\":\"lost\",\"type\":\"server_error\",\"reason\":\"worker_lost\"}}\n\n"
	done   = "data: [DONE]\n\n"
)

func TestOutcomes(t *testing.T) {
	whole := role + textA + textB + finish + usage + done
	refusal := `{"error":{"message":"later","type":"server_error","param":null,"code":"capacity","reason":"no_worker","retry_after":7}}`
	errorAnswer := func(status, extra, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", status, extra, len(body), body)
	}
	for name, c := range map[string]struct {
		answer string
		want   Outcome
		text   string
		check  func(*Record) bool
	}{
		"complete": {chunked(whole), OK, "aéb", func(r *Record) bool {
			return r.Done && r.Finish == "length" && *r.Usage == Usage{3, 2, 5, 0} && r.RequestID == "inner" && r.Events == 5 &&
				r.TextEvents == 2 && len(r.Gaps) == 1 && r.LastEventID == "r/4" && len(r.EventIDs) == 5 && r.TTFT > 0 && r.E2E >= r.TTFT
		}},
		"until the end of the connection": {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + whole + "<close>", OK, "aéb", nil},
		"usage as Python writes it": {chunked(role + textA + textB + "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 2, \"prompt_tokens_details\": {\"cached_tokens\": 1}}}\n\n" + done), OK, "aéb",
			func(r *Record) bool { return r.Usage != nil && *r.Usage == Usage{3, 2, 0, 1} }},
		"DONE, then the connection breaks": {strings.TrimSuffix(chunked(whole), "0\r\n\r\n") + "<close>", OK, "aéb", nil},
		"no DONE":                          {chunked(role + textA + finish), Truncated, "aé", func(r *Record) bool { return r.Finish == "length" }},
		"cut between chunks":               {strings.TrimSuffix(chunked(role+textA), "0\r\n\r\n") + "<close>", Truncated, "aé", nil},
		"cut in a chunk":                   {strings.TrimSuffix(chunked(role+textA+textB), "\n\r\n0\r\n\r\n") + "<close>", Truncated, "aé", nil},
		"cut in DONE":                      {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + role + textA + "data: [DONE]\n<close>", Truncated, "aé", nil},
		"short of its length":              {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}<close>", Truncated, "", nil},
		"headers, then nothing": {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n<close>", Truncated, "", func(r *Record) bool {
			return r.Headers() && r.TTFT == -1
		}},
		"error event": {chunked(role + textA + broken), StreamError, "aé", func(r *Record) bool {
			return !r.Done && r.Reason == "worker_lost" && r.Err == "lost"
		}},
		"error event and a wrong DONE": {chunked(role + broken + done), StreamError, "", func(r *Record) bool { return r.Done }},
		"event that is not JSON":       {chunked(role + "data: {\"choices\n\n" + done), StreamError, "", nil},
		"refused": {errorAnswer("503 Service Unavailable", "Retry-After: 7\r\n", refusal), Refused, "", func(r *Record) bool {
			return r.Status == 503 && r.Reason == "no_worker" && r.RetryAfter == 7*time.Second
		}},
		"error status":    {errorAnswer("400 Bad Request", "", `{"error":{"message":"no","code":"invalid_value"}}`), HTTPError, "", func(r *Record) bool { return r.Reason == "invalid_value" }},
		"gateway's error": {errorAnswer("503 Service Unavailable", "", "<html>"), HTTPError, "", nil},
		"not streamed":    {errorAnswer("200 OK", "", `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1}}}`), OK, "hi", func(r *Record) bool { return *r.Usage == Usage{1, 2, 3, 1} && r.Finish == "stop" }},
		"not streamed, until the end of the connection": {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" +
			`{"choices":[{"text":"ho","finish_reason":"stop"}]}<close>`, OK, "ho", nil},
		"completion":           {errorAnswer("200 OK", "", `{"choices":[{"text":"ho","finish_reason":"stop"}]}`), OK, "ho", nil},
		"closed":               {"<close>", ConnectError, "", func(r *Record) bool { return !r.Headers() }},
		"cut in the headers":   {"HTTP/1.1 200 OK\r\nContent-Ty<close>", ConnectError, "", nil},
		"not HTTP":             {"SSH-2.0-x\r\n<close>", ConnectError, "", nil},
		"continue, then 200":   {"HTTP/1.1 100 Continue\r\n\r\n" + chunked(whole), OK, "aéb", nil},
		"bad chunk size":       {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Truncated, "", nil},
		"hangs in mid-stream":  {strings.TrimSuffix(chunked(role+textA), "0\r\n\r\n") + "<hang>", Timeout, "aé", nil},
		"hangs before headers": {"<hang>", Timeout, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rawServer(t, func(int, int, *http.Request) string { return c.answer })
			client := newClient(t, url, func(cfg *ClientConfig) {
				if c.want == Timeout {
					cfg.Timeout = time.Second
				}
			})
			r := client.Do(t.Context(), &Request{Path: "/v1/chat/completions", Body: []byte(`{"stream":true}`)})
			if r.Outcome != c.want || r.Text != c.text || c.check != nil && !c.check(r) {
				t.Fatalf("want %s with text %q, got %+v", c.want, c.text, r)
			}
		})
	}
}

func TestWhatIsSent(t *testing.T) {
	got := make(chan *http.Request, 1)
	url := rawServer(t, func(_, _ int, r *http.Request) string { got <- r; return chunked(done) })
	c := newClient(t, url+"/prefix/", func(cfg *ClientConfig) { cfg.APIKey = "k" })
	c.Do(t.Context(), &Request{Path: "/v1/x", ClientID: "mine", LastEventID: "r/3", Header: map[string]string{"X-Resume-Grace-Ms": "5"}, Body: []byte("{}")})
	r := <-got
	for key, want := range map[string]string{"X-Request-Id": "mine", "Last-Event-Id": "r/3", "X-Resume-Grace-Ms": "5", "Authorization": "Bearer k", "Content-Type": "application/json"} {
		if r.Header.Get(key) != want {
			t.Errorf("%s is %q, want %q", key, r.Header.Get(key), want)
		}
	}
	if r.Method != "POST" || r.URL.Path != "/prefix/v1/x" || r.ContentLength != 2 {
		t.Errorf("%s %s, %d bytes", r.Method, r.URL, r.ContentLength)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var conns, requests atomic.Int32
	url := rawServer(t, func(conn, request int, _ *http.Request) string {
		conns.Store(int32(conn) + 1)
		requests.Add(1)
		return chunked(role + done)
	})
	c := newClient(t, url, nil)
	for range 5 {
		if r := c.Do(t.Context(), &Request{Path: "/"}); r.Outcome != OK {
			t.Fatalf("%+v", r)
		}
	}
	if conns.Load() != 1 || requests.Load() != 5 {
		t.Fatalf("%d requests on %d connections", requests.Load(), conns.Load())
	}
}

// A connection that the server closed while it was idle must not cost the next request.
func TestClosedIdleConnectionIsNotUsed(t *testing.T) {
	var answered atomic.Int32
	url := rawServer(t, func(int, int, *http.Request) string { answered.Add(1); return chunked(role+done) + "<close>" })
	c := newClient(t, url, nil)
	for i := range 20 {
		if r := c.Do(t.Context(), &Request{Path: "/"}); r.Outcome != OK {
			t.Fatalf("%d: %+v", i, r)
		}
		c.mu.Lock()
		for len(c.idle) == 1 && c.idle[0].alive() { // until the end of the connection has come
			c.mu.Unlock()
			c.mu.Lock()
		}
		c.mu.Unlock()
	}
	if answered.Load() != 20 {
		t.Fatalf("%d requests were sent for 20", answered.Load())
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if r := newClient(t, "http://"+l.Addr().String(), nil).Do(t.Context(), &Request{Path: "/"}); r.Outcome != ConnectError || r.Headers() {
		t.Fatalf("%+v", r)
	}
}

// endless streams text events until its client is gone, and says so, and when it has begun.
func endless(t *testing.T) (url string, begun, gone chan struct{}) {
	begun, gone = make(chan struct{}, 16), make(chan struct{}, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				fmt.Fprintf(w, "id: r/%d\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", i)
				w.(http.Flusher).Flush()
				if i == 0 {
					begun <- struct{}{}
				}
			case <-r.Context().Done():
				gone <- struct{}{}
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, begun, gone
}

func TestDrops(t *testing.T) {
	url, begun, gone := endless(t)
	c := newClient(t, url, nil)
	r := c.Do(t.Context(), &Request{Path: "/", DropAfterEvents: 3})
	if r.Outcome != Disconnected || r.Events != 3 || r.Text != "xxx" || r.LastEventID != "r/2" {
		t.Fatalf("%+v", r)
	}
	<-begun
	<-gone
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if r = c.Do(ctx, &Request{Path: "/"}); r.Outcome != Disconnected {
		t.Fatalf("%+v", r)
	}
	<-gone
	if r = c.Do(t.Context(), &Request{Path: "/", DropAfter: 30 * time.Millisecond}); r.Outcome != Disconnected || r.E2E < 30*time.Millisecond {
		t.Fatalf("%+v", r)
	}
}

func TestConfigNamesTheKey(t *testing.T) {
	for key, change := range map[string]func(*ClientConfig){
		"url":      func(c *ClientConfig) { c.URL = "ftp://x" },
		"timeout":  func(c *ClientConfig) { c.Timeout = 0 },
		"max_idle": func(c *ClientConfig) { c.MaxIdle = -1 },
	} {
		cfg := DefaultClientConfig()
		cfg.URL = "http://x"
		change(&cfg)
		if _, err := NewClient(cfg); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
