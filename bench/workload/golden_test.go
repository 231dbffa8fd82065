package workload

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

// Results are recorded with these draws: whoever changes them makes those results another workload's. To change them on
// purpose: go test ./bench/workload -run Golden -update
func TestGoldenFirstRequests(t *testing.T) {
	for _, name := range Embedded() {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("# seed index | kind tenant class | system, its tokens | prompt tokens, FNV-1a of their ids | cap, output\n")
			for _, seed := range []uint64{1, 7} {
				g := generator(t, name, seed)
				for i := range 8 {
					r := g.Request(i)
					h := fnv.New32a()
					fmt.Fprint(h, r.Prompt)
					fmt.Fprintf(&b, "%d %d | %q %q %q | %d %d | %d %08x | %d %d\n",
						seed, i, r.Kind, r.Tenant, r.Class, r.System, r.SystemTokens, len(r.Prompt), h.Sum32(), r.Cap, r.Output)
				}
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("draws differ from %s:\n%s", path, b.String())
			}
		})
	}
}
