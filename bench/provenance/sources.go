package provenance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"runtime/debug"
	"slices"
	"strings"
)

// Engine lists the files and folders, below the module's root, in which a change can change what is measured: everything
// between a request's arrival and its last token, the simulator of that, what makes, offers and times requests, and where flags
// have their defaults. go.mod and go.sum stand for the dependencies, llama.cpp among them: a
// change of any of them changes the hash, though not every one changes the engine.
var Engine = []string{
	"go.mod", "go.sum", "ingress", "predictor", "scheduler", "schema", "streams", "worker",
	"bench/arrival", "bench/ladder/flags.go", "bench/ladder/services.go", "bench/ladder/sim.go", "bench/load", "bench/pipeline", "bench/sim", "bench/workload",
	"services/engine.go", "services/group.go", "services/ingress.go", "services/model_flags.go", "services/process.go", "services/scheduler.go",
	"services/sim.go", "services/up.go", "services/upstream.go", "services/worker.go",
}

// stamp is set by the linker: the hash of the tree that this binary was built from.
var stamp string

// Sources names the engine that this binary is: "sha256:…" as Hash computes it, or "git:<commit>" with "+dirty" behind it
// if the tree had changes, or "unknown".
func Sources() string {
	if stamp != "" {
		return "sha256:" + stamp
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return commit(info.Settings)
}

// commit reads what Go recorded of the working tree.
func commit(settings []debug.BuildSetting) string {
	revision, dirty := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return "unknown"
	}
	return "git:" + revision + dirty
}

// Hash returns the SHA-256, in hexadecimal, over name, length and content of every file of Engine that is compiled or
// embedded: all but tests, their data, and documents. root is the module's root.
func Hash(root fs.FS) (string, error) {
	var files []string
	for _, top := range Engine {
		err := fs.WalkDir(root, top, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
				return fs.SkipDir
			case !d.IsDir() && compiled(d.Name()):
				files = append(files, name)
			}
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("provenance: %w", err)
		}
	}
	slices.Sort(files)
	h := sha256.New()
	for _, name := range files {
		b, err := fs.ReadFile(root, name)
		if err != nil {
			return "", fmt.Errorf("provenance: %w", err)
		}
		fmt.Fprintf(h, "%s\x00%d\x00", name, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func compiled(name string) bool {
	return !strings.HasSuffix(name, "_test.go") && path.Ext(name) != ".md" && !strings.HasPrefix(name, ".")
}
