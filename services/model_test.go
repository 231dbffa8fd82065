package services

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runJSON runs a command line and reads what it prints.
func runJSON(t *testing.T, into any, args ...string) {
	t.Helper()
	status, out, errOut := run(args...)
	if status != 0 {
		t.Fatalf("%q: %d, %s", args, status, errOut)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("%q: %v in %s", args, err, out)
	}
}

// A model is made, served over HTTP, pulled, found by its name, looked at and listed.
func TestModelCommands(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	made := filepath.Join(dir, "small.gguf")
	var synth struct {
		Path       string
		Parameters uint64
		SizeBytes  int64 `json:"size_bytes"`
	}
	runJSON(t, &synth, "model", "synth", "tiny", "--out", made, "--seed", "7", "--json")
	file, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	if synth.Path != made || synth.SizeBytes != int64(len(file)) || synth.Parameters < 5e6 {
		t.Errorf("%+v; the file has %d bytes", synth, len(file))
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	digest := sha256.Sum256(file)
	sum, url := hex.EncodeToString(digest[:]), server.URL+"/small.gguf"

	status, _, errOut := run("model", "pull", url, "--model-dir", cache)
	if status != 1 || !strings.Contains(errOut, "--sha256") || !strings.Contains(errOut, "--allow-unpinned") {
		t.Errorf("without a hash: %d, %s", status, errOut)
	}
	status, _, errOut = run("model", "pull", url, "--model-dir", cache, "--sha256", strings.Repeat("0", 64))
	if status != 1 || !strings.Contains(errOut, "SHA-256 differs") {
		t.Errorf("with another hash: %d, %s", status, errOut)
	}
	var pulled struct {
		Path, SHA256   string
		Pinned         bool
		AlreadyPresent bool `json:"already_present"`
	}
	runJSON(t, &pulled, "model", "pull", url, "--model-dir", cache, "--sha256", sum, "--json")
	if pulled.Path != filepath.Join(cache, "small.gguf") || pulled.SHA256 != sum || !pulled.Pinned || pulled.AlreadyPresent {
		t.Errorf("%+v", pulled)
	}
	if status, out, _ := run("model", "pull", url, "--model-dir", cache, "--sha256", sum); status != 0 || !strings.Contains(out, "already here") {
		t.Errorf("again: %d, %s", status, out)
	}

	var head struct {
		Parameters uint64
		Tensors    []struct{ Name string }
	}
	runJSON(t, &head, "model", "inspect", "small", "--model-dir", cache, "--json")
	if head.Parameters != synth.Parameters || len(head.Tensors) == 0 {
		t.Errorf("%d parameters, %d tensors", head.Parameters, len(head.Tensors))
	}
	if status, out, _ := run("model", "inspect", "small", "--model-dir", cache, "--tensors"); status != 0 || !strings.Contains(out, head.Tensors[0].Name) || !strings.Contains(out, "chat template") {
		t.Errorf("%d, %s", status, out)
	}
	var list struct {
		Here  []struct{ Name, Path string }
		Known []struct{ Name string }
	}
	runJSON(t, &list, "model", "list", "--model-dir", cache, "--json")
	if len(list.Here) != 1 || list.Here[0].Name != "small" || len(list.Known) == 0 {
		t.Errorf("%+v", list)
	}
	if status, out, _ := run("model", "list", "--model-dir", cache); status != 0 || !strings.Contains(out, "synth:120m") || !strings.Contains(out, "cadence model pull "+list.Known[0].Name) {
		t.Errorf("%d, %s", status, out)
	}
}

func TestModelsThatAreNotThere(t *testing.T) {
	cache := t.TempDir()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	junk := filepath.Join(cache, "junk.gguf")
	if err := os.WriteFile(junk, []byte("no model at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"synth:tiny", []string{"inspect", "nope"}},
		{"404", []string{"pull", server.URL + "/x.gguf", "--allow-unpinned"}},
		{"qwen2.5-0.5b-instruct-q4_k_m", []string{"pull", "nope"}},
		{"junk.gguf", []string{"inspect", junk}},
	} {
		status, _, errOut := run(append([]string{"model"}, append(c.args, "--model-dir", cache)...)...)
		if status != 1 || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: %d, %s", c.args, status, errOut)
		}
	}
}
