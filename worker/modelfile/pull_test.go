package modelfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestPull(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	var last, total int64
	r.Progress = func(done, of int64) { last, total = done, of }
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	if !result.Pinned || result.AlreadyPresent || result.Attempts != 1 || last != int64(len(s.data)) || total != last {
		t.Errorf("result %+v, progress %d of %d", result, last, total)
	}
	again, err := Pull(t.Context(), r)
	if err != nil || !again.AlreadyPresent || again.Path != result.Path || again.SHA256 != result.SHA256 || len(s.requests()) != 1 {
		t.Errorf("second call: %+v, %v, %d requests", again, err, len(s.requests()))
	}
}

func TestPullResumesAfterBrokenConnection(t *testing.T) {
	s := serve(t, model(t, 1))
	s.plan = []http.HandlerFunc{s.half, status(503)}
	r := s.request()
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	rest := fmt.Sprintf("bytes=%d-", len(s.data)/2)
	if got := s.requests(); !slices.Equal(got, []string{"", rest, rest}) || result.Attempts != 3 {
		t.Errorf("requests %q, result %+v", got, result)
	}
}

// cancelHalfway leaves a part and returns its length.
func cancelHalfway(t *testing.T, s *server, r Request) int64 {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("user pressed ^C")
	r.Progress = func(done, total int64) {
		if done > total/3 {
			cancel(stop)
		}
	}
	if _, err := Pull(ctx, r); !errors.Is(err, stop) {
		t.Fatalf("cancelled Pull: %v", err)
	}
	info, err := os.Stat(filepath.Join(r.Dir, "test.gguf.part"))
	if err != nil || info.Size() == 0 || info.Size() == int64(len(s.data)) {
		t.Fatalf("part is %v, %v", info, err)
	}
	return info.Size()
}

func TestPullResumesAfterCancel(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	kept := cancelHalfway(t, s, r)
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	if got := s.requests(); got[len(got)-1] != fmt.Sprintf("bytes=%d-", kept) || result.Resumed != kept {
		t.Errorf("requests %q, resumed at %d, want %d", got, result.Resumed, kept)
	}
}

func TestPullStartsOver(t *testing.T) {
	other := model(t, 2)
	for name, change := range map[string]func(*server, *Request){
		"server without ranges": func(s *server, _ *Request) {
			s.plan = []http.HandlerFunc{nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(s.data) }}
		},
		"file changed": func(s *server, r *Request) {
			s.data, s.etag, r.SHA256 = other, `"new"`, sum(other)
		},
		"file changed and If-Range ignored": func(s *server, r *Request) {
			s.data, s.etag, r.SHA256 = other, `"new"`, sum(other)
			s.plan = []http.HandlerFunc{nil, func(w http.ResponseWriter, q *http.Request) {
				q.Header.Del("If-Range")
				s.whole(w, q)
			}}
		},
		"range from elsewhere": func(s *server, _ *Request) {
			s.plan = []http.HandlerFunc{nil, func(w http.ResponseWriter, q *http.Request) {
				q.Header.Set("Range", "bytes=7-")
				s.whole(w, q)
			}}
		},
		"part too long": func(s *server, r *Request) {
			part := filepath.Join(r.Dir, "test.gguf.part")
			if err := os.Truncate(part, int64(len(s.data))+5); err != nil {
				t.Fatal(err)
			}
		},
		"part damaged": func(s *server, r *Request) {
			f, err := os.OpenFile(filepath.Join(r.Dir, "test.gguf.part"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte("damage"), 1000); err != nil {
				t.Fatal(err)
			}
		},
		"state lost": func(_ *server, r *Request) {
			if err := os.Remove(filepath.Join(r.Dir, "test.gguf.part.json")); err != nil {
				t.Fatal(err)
			}
		},
		"state damaged": func(_ *server, r *Request) {
			if err := os.WriteFile(filepath.Join(r.Dir, "test.gguf.part.json"), []byte("{"), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"other URL": func(s *server, r *Request) { r.Source = s.URL + "/elsewhere/test.gguf" },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, model(t, 1))
			r := s.request()
			cancelHalfway(t, s, r)
			change(s, &r)
			result, err := Pull(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			checkPulled(t, r, result, s.data)
			if result.Resumed != 0 {
				t.Errorf("resumed at %d", result.Resumed)
			}
		})
	}
}

// Without a validator nothing can be resumed, not even in one call.
func TestPullWithoutValidator(t *testing.T) {
	s := serve(t, model(t, 1))
	s.etag = ""
	s.plan = []http.HandlerFunc{func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(s.data)))
		_, _ = w.Write(s.data[:1000])
		panic(http.ErrAbortHandler)
	}}
	r := s.request()
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	if got := s.requests(); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("requests %q", got)
	}
}

func TestPullFindsPartComplete(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	cancelHalfway(t, s, r)
	if err := os.WriteFile(filepath.Join(r.Dir, "test.gguf.part"), s.data, 0o644); err != nil {
		t.Fatal(err)
	}
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	if result.Resumed != int64(len(s.data)) {
		t.Errorf("resumed at %d", result.Resumed)
	}
}

func TestPullShortBodies(t *testing.T) {
	s := serve(t, model(t, 1))
	n := len(s.data)
	s.plan = []http.HandlerFunc{s.half, func(w http.ResponseWriter, _ *http.Request) { // a proxy that cuts ranges short
		w.Header().Set("ETag", s.etag)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", n/2, n/2+99, n))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(s.data[n/2 : n/2+100])
	}}
	r := s.request()
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	if got := s.requests(); got[len(got)-1] != fmt.Sprintf("bytes=%d-", n/2+100) {
		t.Errorf("requests %q", got)
	}
}

func TestPullStalledServer(t *testing.T) {
	s := serve(t, model(t, 1))
	silent := func(w http.ResponseWriter, q *http.Request) { <-q.Context().Done() }
	s.plan = []http.HandlerFunc{silent, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", s.etag)
		w.Header().Set("Content-Length", fmt.Sprint(len(s.data)))
		_, _ = w.Write(s.data[:200_000])
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		silent(w, q)
	}}
	r := s.request()
	r.StallTimeout = 100 * time.Millisecond
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	if got := s.requests(); !slices.Equal(got, []string{"", "", "bytes=200000-"}) {
		t.Errorf("requests %q", got)
	}
	s.plan, s.seen = slices.Repeat([]http.HandlerFunc{silent}, 9), nil
	r.Dir, r.Retries = t.TempDir(), 1
	if _, err := Pull(t.Context(), r); !errors.Is(err, ErrTransfer) || !strings.Contains(err.Error(), "no data for 100ms") || len(s.requests()) != 2 {
		t.Errorf("server that stays silent: %v, %d requests", err, len(s.requests()))
	}
}

func TestPullFollowsRedirects(t *testing.T) {
	s := serve(t, model(t, 1))
	s.plan = []http.HandlerFunc{func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, "/cdn/abc", http.StatusFound) }}
	r := s.request()
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	secure := httptest.NewUnstartedServer(http.RedirectHandler(s.URL, http.StatusFound))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // refusing its certificate is what the client is meant to do
	secure.StartTLS()
	defer secure.Close()
	r.Source, r.Client, r.Dir = secure.URL+"/test.gguf", secure.Client(), t.TempDir()
	if _, err := Pull(t.Context(), r); !errors.Is(err, ErrRedirect) || !strings.Contains(err.Error(), "from https to http://") {
		t.Errorf("redirect from https to http: %v", err)
	}
	r.Client = nil // does not know the test server's certificate
	if _, err := Pull(t.Context(), r); !errors.Is(err, ErrTransfer) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("unknown certificate: %v", err)
	}
}

func TestPullWaitsAsTheServerAsks(t *testing.T) {
	s := serve(t, model(t, 1), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	r := s.request()
	start := time.Now()
	if _, err := Pull(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(start); waited < time.Second {
		t.Errorf("came back after %v", waited)
	}
	if got := retryAfter(time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)); got < 25*time.Second || got > 30*time.Second {
		t.Errorf("Retry-After as a date: %v", got)
	}
	for _, header := range []string{"", "-5", "soon"} {
		if got := retryAfter(header); got != 0 {
			t.Errorf("Retry-After %q: %v", header, got)
		}
	}
}

func TestPullNoServer(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	s.Close()
	r.Retries = 1
	if _, err := Pull(t.Context(), r); !errors.Is(err, ErrTransfer) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("no server: %v", err)
	}
}

func TestPullConcurrently(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	var group sync.WaitGroup
	results := make([]Result, 6)
	for i := range results {
		group.Go(func() {
			var err error
			if results[i], err = Pull(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	downloaded := 0
	for _, result := range results {
		if !result.AlreadyPresent {
			downloaded++
		}
	}
	if downloaded != 1 || len(s.requests()) != 1 {
		t.Errorf("%d calls downloaded in %d requests", downloaded, len(s.requests()))
	}
	checkPulled(t, r, results[0], s.data)
}

func TestPullWaitingForLockCanBeCancelled(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	unlock, err := lock(t.Context(), r.Dir, "test.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Pull(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting Pull: %v", err)
	}
}

func TestPullChecksWhatIsThere(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	path := filepath.Join(r.Dir, "test.gguf")
	if err := os.WriteFile(path, model(t, 2), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), r); !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("another model under that name: %v", err)
	}
	r.SHA256, r.AllowUnpinned = "", true
	result, err := Pull(t.Context(), r)
	if err != nil || !result.AlreadyPresent || result.Pinned {
		t.Errorf("put there by hand: %+v, %v", result, err)
	}
	if err := os.WriteFile(path, s.data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), r); !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), "recorded") {
		t.Errorf("changed since it was recorded: %v", err)
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestPullUnpinned(t *testing.T) {
	s := serve(t, model(t, 1))
	r := s.request()
	r.SHA256 = ""
	if _, err := Pull(t.Context(), r); !errors.Is(err, ErrUnpinned) {
		t.Errorf("without leave: %v", err)
	}
	r.AllowUnpinned = true
	result, err := Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checkPulled(t, r, result, s.data)
	if result.Pinned {
		t.Error("result says pinned")
	}
}

func TestContentRange(t *testing.T) {
	for header, want := range map[string][2]int64{
		"bytes 5-9/10": {5, 10}, "bytes 0-0/1": {0, 1}, "bytes 5-9/*": {5, -1},
		"": {0, 0}, "bytes */10": {0, 0}, "items 5-9/10": {0, 0}, "bytes 9-5/10": {0, 0}, "bytes 5-10/10": {0, 0}, "bytes -5-9/10": {0, 0}, "bytes 5-9": {0, 0}, "bytes a-b/c": {0, 0},
	} {
		from, total, ok := contentRange(header)
		if from != want[0] || total != want[1] || ok != (want != [2]int64{}) {
			t.Errorf("%q: from %d, total %d, %t", header, from, total, ok)
		}
	}
}

// go test -bench Pull ./worker/modelfile
func BenchmarkPull(b *testing.B) {
	data := model(b, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
	}))
	defer server.Close()
	r := DefaultRequest(server.URL + "/test.gguf")
	r.SHA256, r.Dir = sum(data), b.TempDir()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		result, err := Pull(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.Remove(result.Path); err != nil {
			b.Fatal(err)
		}
	}
}
