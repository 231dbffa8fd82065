package report

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEmbed(t *testing.T) {
	table := func(name, dir string, options []string) (string, error) {
		return "| " + name + " of " + dir + strings.Join(append([]string{""}, options...), " with ") + " |\n", nil
	}
	text := "# A\n\n<!-- cadence:report headline runs/x partial slo=e2e=2s -->\nold\n<!-- /cadence:report -->\n\n````md\n<!-- cadence:report NAME DIR -->\n```\n````\nend"
	want := "# A\n\n<!-- cadence:report headline runs/x partial slo=e2e=2s -->\n\n| headline of runs/x with partial with slo=e2e=2s |\n\n<!-- /cadence:report -->\n\n````md\n<!-- cadence:report NAME DIR -->\n```\n````\nend"
	got, err := Embed(text, table)
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := Embed(got, table); err != nil || again != got {
		t.Errorf("the second time %q, %v", again, err)
	}
	// Code in a line is no fence.
	if got, err := Embed("```x``` is code\n<!-- cadence:report a b -->\n<!-- /cadence:report -->\n", table); err != nil || !strings.Contains(got, "| a of b |") {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{
		"<!-- cadence:report headline runs -->\n", "<!-- /cadence:report -->\n", "<!-- cadence:report headline -->\n<!-- /cadence:report -->\n",
		"<!-- cadence:report a b -->\n<!-- cadence:report a b -->\n<!-- /cadence:report -->\n", "<!-- cadence:report a b\n<!-- /cadence:report -->\n",
		"<!-- cadence:reprot a b -->\nold\n", "<!--cadence:report a b -->\n", "<!-- /cadence:reports -->\n", "```\n<!-- cadence:report a b -->\n<!-- /cadence:report -->\n",
	} {
		if _, err := Embed(bad, table); !errors.Is(err, ErrMarker) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestEmbedFile(t *testing.T) {
	root := t.TempDir()
	fixed(t, filepath.Join(root, "docs", "runs"), "a", 1, 1, 0, 10, 300*time.Millisecond)
	path := filepath.Join(root, "docs", "a.md")
	put(t, path, "# A\n<!-- cadence:report headline runs -->\n<!-- /cadence:report -->\n")
	read := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := read()
	if diff, err := new(Library).EmbedFile(path, true); err != nil || !strings.Contains(diff, "| a ") || read() != before {
		t.Errorf("a check changes the file or finds nothing: %q, %v", diff, err)
	}
	if diff, err := new(Library).EmbedFile(path, false); err != nil || diff == "" || !strings.Contains(read(), "| a ") {
		t.Errorf("%q, %v", diff, err)
	}
	if diff, err := new(Library).EmbedFile(path, true); err != nil || diff != "" {
		t.Errorf("it drifts at once: %q, %v", diff, err)
	}
	// A number that somebody changed, and records that somebody changed.
	put(t, path, strings.Replace(read(), "1.00", "1.20", 1))
	if diff, err := new(Library).EmbedFile(path, true); err != nil || strings.Count(diff, "\n") != 2 || !strings.Contains(diff, "-") {
		t.Errorf("%q, %v", diff, err)
	}
	put(t, path, "<!-- cadence:report headline runs slo=e2e=100ms overload=1 -->\n<!-- /cadence:report -->\n")
	if _, err := new(Library).EmbedFile(path, false); err != nil || !strings.Contains(read(), "| a   | ") || !strings.Contains(read(), "100 ms") {
		t.Errorf("%v: %s", err, read())
	}
	for _, bad := range []string{"slo=1", "overload=x", "overload=-1", "seed=1"} {
		put(t, path, "<!-- cadence:report headline runs "+bad+" -->\n<!-- /cadence:report -->\n")
		if _, err := new(Library).EmbedFile(path, false); !errors.Is(err, ErrMarker) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	put(t, path, "# Nothing to check\n")
	if _, err := new(Library).EmbedFile(path, true); !errors.Is(err, ErrMarker) {
		t.Errorf("a file without a table passes: %v", err)
	}
	put(t, path, "<!-- cadence:report anchor runs -->\n<!-- /cadence:report -->\n")
	if _, err := new(Library).EmbedFile(path, false); !errors.Is(err, ErrRecords) {
		t.Error(err)
	}
}

func TestDiff(t *testing.T) {
	if got := Diff("a\nb\n", "a\nb\n"); got != "" {
		t.Errorf("%q", got)
	}
	if got, want := Diff("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n"), "-2: b\n+2: x\n+4: y\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
