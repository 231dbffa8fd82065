// Package schematest is what the tests of several packages share: stories in files, which are replayed and compared with what
// stands in them. Standard library only; not for other code than tests.
package schematest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Scenarios runs a subtest, named after the file, for each file that matches pattern (as of path/filepath.Glob). replay gets its
// text and returns what it should be: another text fails the subtest, or with rewrite takes its place in the file. It is an error
// if no file matches.
func Scenarios(t *testing.T, pattern string, rewrite bool, replay func(t *testing.T, text string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			switch {
			case got == string(want):
			case rewrite:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s differs; got:\n%s", file, got)
			}
		})
	}
}
