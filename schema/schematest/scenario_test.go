package schematest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every file that matches is replayed under its name, and with rewrite those that differ are written, and no others.
func TestScenarios(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.txt": "two", "a.txt": "ONE", "c.md": "no scenario"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	upper := func(_ *testing.T, text string) string { return strings.ToUpper(text) }
	var names []string
	Scenarios(t, filepath.Join(dir, "*.txt"), true, func(t *testing.T, text string) string {
		names = append(names, t.Name())
		return upper(t, text)
	})
	if !slices.Equal(names, []string{"TestScenarios/a", "TestScenarios/b"}) {
		t.Error(names)
	}
	Scenarios(t, filepath.Join(dir, "*.txt"), false, upper) // now they are what they should be
	if text, err := os.ReadFile(filepath.Join(dir, "c.md")); err != nil || string(text) != "no scenario" {
		t.Error(string(text), err)
	}
}
