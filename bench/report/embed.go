package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrMarker is returned for a marker that is not understood, ErrDrift for a file whose tables are not those of the
// records.
var (
	ErrMarker = errors.New("report: bad marker")
	ErrDrift  = errors.New("report: the text differs from the records")
)

// Markers: what stands between them is a table.
const (
	begin = "<!-- cadence:report "
	end   = "<!-- /cadence:report -->"
)

// Embed returns text with a table between each pair of markers
//
//	<!-- cadence:report NAME DIR [overload=RATE] [slo=SLO …] [baseline=ARM] [partial] -->
//	<!-- /cadence:report -->
//
// where table returns the Markdown of table NAME of the records in DIR, read with what options say. Markers stand alone on
// their lines; those in fenced code are text. It returns ErrMarker for one that is not, for a comment that looks like one
// (whatever begins with "cadence:"), and for a fence that does not end.
func Embed(text string, table func(name, dir string, options []string) (string, error)) (string, error) {
	var b strings.Builder
	open, fence := "", ""
	for line := range strings.Lines(text) {
		mark := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(mark, fence) && strings.Trim(mark, fence[:1]) == "" {
				fence = ""
			}
			b.WriteString(line)
		case open == "" && fenced(mark) != "":
			fence = fenced(mark)
			b.WriteString(line)
		case strings.HasPrefix(mark, begin):
			if open != "" {
				return "", fmt.Errorf("%w: %q begins before %q has ended", ErrMarker, mark, open)
			}
			words := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(mark, begin), "-->"))
			if len(words) < 2 || !strings.HasSuffix(mark, "-->") {
				return "", fmt.Errorf("%w: %q, wanted: %sNAME DIR -->", ErrMarker, mark, begin)
			}
			t, err := table(words[0], words[1], words[2:])
			if err != nil {
				return "", fmt.Errorf("%s: %w", mark, err)
			}
			open = mark
			b.WriteString(mark + "\n\n" + strings.TrimSpace(t) + "\n\n")
		case mark == end:
			if open == "" {
				return "", fmt.Errorf("%w: %q ends nothing", ErrMarker, mark)
			}
			open = ""
			b.WriteString(line)
		case strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(mark, "<!--"), " /"), "cadence:"):
			return "", fmt.Errorf("%w: %q, wanted: %sNAME DIR --> or %s", ErrMarker, mark, begin, end)
		case open == "":
			b.WriteString(line)
		}
	}
	if fence != "" {
		return "", fmt.Errorf("%w: a fence %s does not end, and hides what stands below it", ErrMarker, fence)
	}
	if open != "" {
		return "", fmt.Errorf("%w: %q does not end", ErrMarker, open)
	}
	return b.String(), nil
}

// fenced returns the fence that a line opens, empty if it opens none: behind backticks there is no other (CommonMark 4.5).
func fenced(line string) string {
	for _, mark := range []string{"`", "~"} {
		rest := strings.TrimLeft(line, mark)
		if n := len(line) - len(rest); n >= 3 && (mark == "~" || !strings.Contains(rest, mark)) {
			return line[:n]
		}
	}
	return ""
}

// Library loads each directory of records once for each set of options.
type Library struct {
	Options Options
	reports map[string]*Report
}

// Report returns the report of a directory, read with the options of a marker over the library's.
func (l *Library) Report(dir string, options []string) (*Report, error) {
	key := strings.Join(append([]string{dir}, options...), "\x00")
	if r := l.reports[key]; r != nil {
		return r, nil
	}
	o, err := l.Options.with(options)
	if err != nil {
		return nil, err
	}
	r, err := Load(dir, o)
	if err != nil {
		return nil, err
	}
	if l.reports == nil {
		l.reports = map[string]*Report{}
	}
	l.reports[key] = r
	return r, nil
}

// with returns o with the options of a marker.
func (o Options) with(words []string) (Options, error) {
	var slos []string
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "overload":
			rate, err := strconv.ParseFloat(value, 64)
			if err != nil || !(rate > 0) {
				return o, fmt.Errorf("%w: %q is no rate above 0", ErrMarker, word)
			}
			o.Overload = rate
		case "slo":
			slos = append(slos, value)
		case "baseline":
			o.Baseline = value
		case "partial":
			o.Partial = true
		default:
			return o, fmt.Errorf("%w: %q is not overload=RATE, slo=SLO, baseline=ARM or partial", ErrMarker, word)
		}
	}
	if len(slos) > 0 {
		parsed, err := ParseSLOs(slos)
		if err != nil {
			return o, fmt.Errorf("%w: %w", ErrMarker, err)
		}
		o.SLOs = parsed
	}
	return o, nil
}

// EmbedFile puts the tables that a Markdown file asks for into it; directories are relative to the file's. It returns
// what changes, as lines that go (-) and come (+), empty for nothing. With check it writes nothing. A file that asks for no
// table is ErrMarker: there is nothing that could be checked.
func (l *Library) EmbedFile(path string, check bool) (diff string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	tables := 0
	out, err := Embed(string(b), func(name, dir string, options []string) (string, error) {
		tables++
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(filepath.Dir(path), dir)
		}
		r, err := l.Report(dir, options)
		if err != nil {
			return "", err
		}
		t, err := r.Table(name)
		if err != nil {
			return "", err
		}
		if t == nil {
			return "", fmt.Errorf("%w: the records have nothing for table %q", ErrRecords, name)
		}
		return t.Markdown(), nil
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if tables == 0 {
		return "", fmt.Errorf("%w: %s has none", ErrMarker, path)
	}
	diff = Diff(string(b), out)
	if diff == "" || check {
		return diff, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return diff, os.WriteFile(path, []byte(out), info.Mode().Perm())
}

// Diff returns the lines in which two texts differ, each with its number: those of a behind -, those of b behind +. It is
// empty if they are equal.
func Diff(a, b string) string {
	x, y := strings.SplitAfter(a, "\n"), strings.SplitAfter(b, "\n")
	// length[i][j] of the longest common subsequence of x[i:] and y[j:], between the ends that agree.
	head := 0
	for head < len(x) && head < len(y) && x[head] == y[head] {
		head++
	}
	tail := 0
	for tail < len(x)-head && tail < len(y)-head && x[len(x)-1-tail] == y[len(y)-1-tail] {
		tail++
	}
	x, y = x[head:len(x)-tail], y[head:len(y)-tail]
	length := make([][]int, len(x)+1)
	for i := range length {
		length[i] = make([]int, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var out strings.Builder
	line := func(sign string, n int, text string) {
		fmt.Fprintf(&out, "%s%d: %s\n", sign, head+n+1, strings.TrimSuffix(text, "\n"))
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && length[i+1][j] >= length[i][j+1]:
			line("-", i, x[i])
			i++
		default:
			line("+", j, y[j])
			j++
		}
	}
	return out.String()
}
