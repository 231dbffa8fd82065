package modelfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/worker/gguf"
)

// model is a real model of a few hundred kilobytes that differs by seed.
func model(t testing.TB, seed uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := gguf.Synth(&b, gguf.Spec{
		Name: "pull", Architecture: gguf.ArchLlama, Layers: 1, Embedding: 128, Heads: 2, KVHeads: 1, FeedForward: 512, Vocab: 4096,
		Context: 512, RopeBase: 10_000, NormEpsilon: 1e-6, Tied: true, Embeddings: gguf.Q8_0, Matrices: gguf.Q8_0, PreTokenizer: "llama-bpe",
	}, seed, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// server serves a file and records what it was asked. Each request takes the next handler of plan, then the plain one.
type server struct {
	*httptest.Server
	t    *testing.T
	mu   sync.Mutex
	data []byte
	etag string
	plan []http.HandlerFunc
	seen []string // Range headers, "" for none
}

func serve(t *testing.T, data []byte, plan ...http.HandlerFunc) *server {
	s := &server{t: t, data: data, etag: `"` + sum(data)[:8] + `"`, plan: plan}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.seen)
	s.seen = append(s.seen, r.Header.Get("Range"))
	handler := http.HandlerFunc(s.whole)
	if n < len(s.plan) && s.plan[n] != nil {
		handler = s.plan[n]
	}
	s.mu.Unlock()
	handler(w, r)
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// whole honours Range and If-Range.
func (s *server) whole(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	data, etag := s.data, s.etag
	s.mu.Unlock()
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// half announces everything and breaks the connection in the middle.
func (s *server) half(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("ETag", s.etag)
	w.Header().Set("Content-Length", fmt.Sprint(len(s.data)))
	_, _ = w.Write(s.data[:len(s.data)/2])
	panic(http.ErrAbortHandler)
}

// request asks for the server's file without waiting between attempts.
func (s *server) request() Request {
	r := DefaultRequest(s.URL + "/models/test.gguf")
	r.Dir, r.SHA256, r.RetryWait = s.t.TempDir(), sum(s.data), 0
	return r
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// checkPulled requires the result to be data, recorded and without leftovers.
func checkPulled(t *testing.T, r Request, result Result, data []byte) {
	t.Helper()
	got, err := os.ReadFile(result.Path)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%s has %d bytes, want %d; error %v", result.Path, len(got), len(data), err)
	}
	if result.SHA256 != sum(data) || result.SizeBytes != int64(len(data)) {
		t.Errorf("result is %+v", result)
	}
	name := filepath.Base(result.Path)
	if recorded, err := os.ReadFile(result.Path + ".sha256"); err != nil || string(recorded) != sum(data)+"  "+name+"\n" {
		t.Errorf("recorded hash is %q, %v", recorded, err)
	}
	checkFiles(t, r.Dir, "."+name+".lock", name, name+".sha256")
}

func checkFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("folder has %v, want %v", names, want)
	}
}
