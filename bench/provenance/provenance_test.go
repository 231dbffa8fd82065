package provenance

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../.."

func tree() fstest.MapFS {
	fs := fstest.MapFS{}
	for _, name := range Engine {
		if path.Ext(name) == "" { // a folder
			name += "/a.go"
		}
		fs[name] = &fstest.MapFile{Data: []byte(name)}
	}
	fs["worker/llama/a.cpp"] = &fstest.MapFile{Data: []byte("C++")}
	return fs
}

func hash(t *testing.T, fs fstest.MapFS) string {
	t.Helper()
	h, err := Hash(fs)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHashChangesWithTheEngineAndNothingElse(t *testing.T) {
	want := hash(t, tree())
	if len(want) != 64 {
		t.Fatal(want)
	}
	for _, name := range []string{"bench/a.go", "bench/report/a.go", "bench/ladder/state.go", "services/report.go", "bench/sim/sim_test.go", "README.md", "worker/README.md", "worker/a_test.go", "worker/testdata/a.txt", "services/a.go"} {
		fs := tree()
		fs[name] = &fstest.MapFile{Data: []byte("x")}
		if hash(t, fs) != want {
			t.Errorf("%s changes the hash", name)
		}
	}
	for name := range tree() {
		fs := maps.Clone(tree())
		fs[name] = &fstest.MapFile{Data: []byte("changed")}
		if hash(t, fs) == want {
			t.Errorf("%s does not change the hash", name)
		}
	}
	added := tree()
	added["worker/new.go"] = &fstest.MapFile{}
	if hash(t, added) == want {
		t.Error("an empty file does not change the hash")
	}
	gone := tree()
	delete(gone, "go.sum")
	if _, err := Hash(gone); err == nil {
		t.Error("a tree without go.sum has a hash")
	}
}

// What runs an experiment's requests, offers and times them, or says by default how, is part of what is measured.
func TestWhatCanChangeAMeasurementIsHashed(t *testing.T) {
	for _, name := range []string{"bench/sim/sim.go", "bench/load/client.go", "bench/load/form.go", "bench/workload/seed.yaml", "bench/arrival/process.go", "bench/ladder/flags.go",
		"services/model_flags.go", "services/sim.go", "predictor/profile/mock.json", "worker/mock/backend.go", "worker/llama/attention_linux.cpp"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		}
		fs := tree()
		fs[name] = &fstest.MapFile{Data: content}
		before := hash(t, fs)
		fs[name] = &fstest.MapFile{Data: append(content, ' ')}
		if hash(t, fs) == before {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

func TestEngineFoldersExist(t *testing.T) {
	for _, name := range Engine {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

// `make build` hands the linker the hash of this tree, under the name that the variable has.
func TestTheBuildStampsThisTree(t *testing.T) {
	cmd := exec.Command("make", "-n", "--no-print-directory", "build")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m := regexp.MustCompile(`-X (\S+/provenance\.stamp)=([0-9a-f]{64})`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("make build stamps no hash: %s", out)
	}
	if want, err := Hash(os.DirFS(root)); err != nil || m[2] != want {
		t.Errorf("it stamps %s, want %s (%v)", m[2], want, err)
	}
	// The linker ignores a name that does not exist, so look from the other side.
	bin := filepath.Join(t.TempDir(), "stamped.test")
	build := exec.Command("go", "test", "-c", "-o", bin, "-ldflags", m[0], ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.Command(bin, "-test.run", "^TestSources$", "-test.v")
	run.Env = append(os.Environ(), "CADENCE_TEST_STAMP="+m[2])
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSources(t *testing.T) {
	if want := os.Getenv("CADENCE_TEST_STAMP"); want != "" && Sources() != "sha256:"+want {
		t.Errorf("a stamped binary says %s", Sources())
	}
	if stamp == "" && strings.HasPrefix(Sources(), "sha256:") {
		t.Error(Sources())
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}
	for _, c := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, "unknown"},
		{[]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "git:abc"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, revision}, "git:abc+dirty"},
	} {
		if got := commit(c.settings); got != c.want {
			t.Errorf("%v: %s, want %s", c.settings, got, c.want)
		}
	}
}
