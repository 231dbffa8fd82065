package modelfile

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestPullErrors(t *testing.T) {
	page := []byte("<html>please log in</html>")
	for name, c := range map[string]struct {
		plan     func(*server) http.HandlerFunc
		change   func(*Request)
		want     error
		says     string
		requests int
		left     []string
	}{
		"not found":  {func(*server) http.HandlerFunc { return status(404) }, nil, ErrHTTP, "404 Not Found", 1, []string{"test.gguf.part"}},
		"not public": {func(*server) http.HandlerFunc { return status(403) }, nil, ErrHTTP, "credentials", 1, []string{"test.gguf.part"}},
		"broken":     {func(*server) http.HandlerFunc { return status(500) }, nil, ErrHTTP, "500 Internal Server Error", 3, []string{"test.gguf.part"}},
		"always half": {func(s *server) http.HandlerFunc {
			return func(w http.ResponseWriter, q *http.Request) { s.half(w, q) }
		}, nil, ErrTransfer, "given up", 3, []string{"test.gguf.part", "test.gguf.part.json"}},
		"wrong hash": {nil, func(r *Request) { r.SHA256 = strings.Repeat("ab", 32) }, ErrChecksum, "expected abab", 1, nil},
		"no model": {func(*server) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }
		}, func(r *Request) { r.SHA256 = sum(page) }, ErrNoModel, `it starts with "<htm"`, 1, nil},
		"compressed": {func(s *server) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(s.data)
			}
		}, nil, ErrTransfer, "compresses", 1, []string{"test.gguf.part"}},
		"larger than announced": {func(s *server) http.HandlerFunc {
			return func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("ETag", s.etag)
				if q.Header.Get("Range") == "" {
					s.half(w, q)
				}
				n := len(s.data) / 2
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", n, n+9, n+10))
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(s.data[n:])
			}
		}, nil, ErrTransfer, "more than the announced", 2, []string{"test.gguf.part", "test.gguf.part.json"}},
		"larger than the disk": {func(*server) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000000000000000000") }
		}, nil, ErrDiskFull, "more bytes needed", 1, []string{"test.gguf.part", "test.gguf.part.json"}},
		"redirect to ftp": {func(*server) http.HandlerFunc {
			return func(w http.ResponseWriter, q *http.Request) {
				http.Redirect(w, q, "ftp://example.org/x", http.StatusFound)
			}
		}, nil, ErrRedirect, "ftp://example.org", 1, []string{"test.gguf.part"}},
		"redirect to a file": {func(*server) http.HandlerFunc {
			return func(w http.ResponseWriter, q *http.Request) {
				http.Redirect(w, q, "file:///etc/passwd", http.StatusFound)
			}
		}, nil, ErrRedirect, "neither http nor https", 1, []string{"test.gguf.part"}},
		"redirect for ever": {func(s *server) http.HandlerFunc {
			return func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, q.URL.Path, http.StatusFound) }
		}, nil, ErrRedirect, "10 in a row", 10, []string{"test.gguf.part"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, model(t, 1))
			if c.plan != nil {
				s.plan = slices.Repeat([]http.HandlerFunc{c.plan(s)}, 20)
			}
			r := s.request()
			r.Retries, r.Source = 2, r.Source+"?token=secret"
			if c.change != nil {
				c.change(&r)
			}
			result, err := Pull(t.Context(), r)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "/models/test.gguf") && !errors.Is(c.want, ErrDiskFull) {
				t.Errorf("error %v, want %v with %q", err, c.want, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("error tells the query: %v", err)
			}
			if n := len(s.requests()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			if result != (Result{}) {
				t.Errorf("result %+v", result)
			}
			checkFiles(t, r.Dir, append([]string{".test.gguf.lock"}, c.left...)...)
		})
	}
}

func TestRequestValidate(t *testing.T) {
	hash := strings.Repeat("0F", 32)
	for _, k := range KnownModels() {
		r := DefaultRequest(k.Name)
		if err := r.Validate(); !errors.Is(err, ErrUnpinned) {
			t.Errorf("%s without a hash: %v", k.Name, err)
		}
		r.SHA256 = hash
		j, err := r.resolve()
		if err != nil || j.url.Scheme != "https" || j.file != k.File || !strings.HasSuffix(j.url.Path, k.File) || j.sha256 != strings.ToLower(hash) {
			t.Errorf("%s: %+v, %v", k.Name, j, err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Request)
		field  string
	}{
		"unknown name":   {func(r *Request) { r.Source = "gpt-5" }, "Source"},
		"ftp":            {func(r *Request) { r.Source = "ftp://example.org/a.gguf" }, "Source"},
		"file":           {func(r *Request) { r.Source = "file:///a.gguf" }, "Source"},
		"no host":        {func(r *Request) { r.Source = "https:///a.gguf" }, "Source"},
		"no URL":         {func(r *Request) { r.Source = "http://%zz" }, "Source"},
		"no file name":   {func(r *Request) { r.Source = "https://example.org/" }, "File"},
		"dots":           {func(r *Request) { r.Source = "https://example.org/.." }, "File"},
		"path as file":   {func(r *Request) { r.File = "../a.gguf" }, "File"},
		"windows path":   {func(r *Request) { r.File = `c:\a.gguf` }, "File"},
		"hidden file":    {func(r *Request) { r.File = ".a.gguf" }, "File"},
		"short hash":     {func(r *Request) { r.SHA256 = "abcd" }, "SHA256"},
		"no hash":        {func(r *Request) { r.SHA256 = strings.Repeat("x", 64) }, "SHA256"},
		"retries":        {func(r *Request) { r.Retries = -1 }, "Retries"},
		"wait":           {func(r *Request) { r.RetryWait = -1 }, "RetryWait"},
		"stall time-out": {func(r *Request) { r.StallTimeout = 0 }, "StallTimeout"},
	} {
		r := DefaultRequest("https://example.org/a.gguf")
		r.SHA256 = hash
		c.change(&r)
		if err := r.Validate(); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), ": "+c.field+" is ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fullDisk takes some bytes and then has no room.
type fullDisk struct {
	partFile
	room int64
}

func (f fullDisk) WriteAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > f.room {
		return 0, &os.PathError{Op: "write", Path: "part", Err: syscall.ENOSPC}
	}
	return f.partFile.WriteAt(p, offset)
}

func TestDiskFullWhileWriting(t *testing.T) {
	s := serve(t, model(t, 1))
	j, err := s.request().resolve()
	if err != nil {
		t.Fatal(err)
	}
	d := newDownload(&j, filepath.Join(j.Dir, j.file))
	d.open = func(name string) (partFile, int64, error) {
		f, size, err := openPart(name)
		return fullDisk{f, 200_000}, size, err
	}
	if err := d.run(t.Context()); !errors.Is(err, ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) || len(s.requests()) != 1 {
		t.Errorf("full disk: %v after %d requests", err, len(s.requests()))
	}
	d.open = openPart // space was made: what was written counts
	if err := d.run(t.Context()); err != nil || d.resumed == 0 || d.have != int64(len(s.data)) {
		t.Errorf("after space was made: %v, resumed at %d, have %d", err, d.resumed, d.have)
	}
}
