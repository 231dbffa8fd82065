package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// dialect is how transformers configures Jinja.
var dialect = func() *config.Config {
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true
	return c
}()

// keepInline marks the tags that follow another tag on their line, with white space between them, as not to be stripped
// on their left: Jinja strips white space before a tag only from the start of a line, gonja from the tag before too.
func keepInline(source string) string {
	// As gonja's lexer does it, whose positions are used here.
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	var out strings.Builder
	copied, end := 0, 0 // end of the tag before; 0: none
	for stream := tokens.LexAll(source, dialect); !stream.End(); {
		t := stream.Next()
		switch t.Type {
		case tokens.VariableEnd, tokens.BlockEnd, tokens.CommentEnd:
			end = t.Pos + len(t.Val)
		case tokens.BlockBegin, tokens.CommentBegin:
			between := source[end:t.Pos]
			if end > 0 && between != "" && strings.Trim(between, " \t") == "" && (t.Val == dialect.BlockStartString || t.Val == dialect.CommentStartString) {
				out.WriteString(source[copied : t.Pos+len(t.Val)])
				out.WriteByte('+')
				copied = t.Pos + len(t.Val)
			}
		}
	}
	out.WriteString(source[copied:])
	return out.String()
}

// environment is gonja's, with what transformers has otherwise.
func environment() *exec.Environment {
	globals := exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables)
	globals.Set("range", boundedRange)
	filters := exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters)
	if err := filters.Replace("tojson", tojson); err != nil {
		panic(err) // gonja has the filter: its version is pinned
	}
	return &exec.Environment{
		Context: globals, Filters: filters, Tests: builtins.Tests,
		ControlStructures: structures(), Methods: methods(),
	}
}

// list is a list whose last element is at -1 even if it is the only one: gonja's own has none there.
type list []any

// GetItem implements gonja's exec.ItemGetter.
func (l list) GetItem(key any) (*exec.Value, bool) {
	i, ok := key.(int)
	if !ok {
		return exec.AsValue(nil), false
	}
	if i < 0 {
		i += len(l)
	}
	if i < 0 || i >= len(l) {
		return exec.AsValue(nil), false
	}
	return exec.AsValue(l[i]), true
}

// methods are gonja's, with a split that gives a list of ours (templates take split(x)[-1]) and a replace whose count may
// be left out.
func methods() exec.Methods {
	str := map[string]exec.Method[string]{}
	for _, name := range []string{"capitalize", "center", "count", "encode", "endswith", "expandtabs", "find", "format", "index", "isalnum",
		"isalpha", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip",
		"partition", "removeprefix", "removesuffix", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "splitlines",
		"startswith", "strip", "swapcase", "title", "upper", "zfill"} {
		if m, ok := builtins.Methods.Str.Get(name); ok {
			str[name] = m
		}
	}
	str["split"], str["replace"] = split, replace
	m := builtins.Methods
	m.Str = exec.NewMethodSet(str)
	return m
}

// split is Python's str.split with at most a separator and a maximum of splits.
func split(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	if len(args.Args) > 2 || len(args.KwArgs) > 0 {
		return nil, exec.ErrInvalidCall(errors.New("split wants a separator and a number of splits"))
	}
	var parts []string
	most := -1
	if len(args.Args) == 2 {
		if most = args.Args[1].Integer(); most >= 0 {
			most++
		}
	}
	switch {
	case len(args.Args) == 0 || args.Args[0].IsNil():
		parts = strings.Fields(self)
	case args.Args[0].String() == "":
		return nil, exec.ErrInvalidCall(errors.New("split's separator is empty"))
	default:
		parts = strings.SplitN(self, args.Args[0].String(), most)
	}
	out := make(list, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return out, nil
}

// maxRange bounds range(): gonja's own has no bound, and a goroutine for each call.
const maxRange = 10_000

func boundedRange(_ *exec.Evaluator, params *exec.VarArgs) ([]int, error) {
	bounds := []int{0, 0, 1}
	for i, a := range params.Args {
		if i > 2 || !a.IsInteger() {
			return nil, exec.ErrInvalidCall(errors.New("range wants one to three integers"))
		}
	}
	switch args := params.Args; len(args) {
	case 1:
		bounds[1] = args[0].Integer()
	case 2, 3:
		for i, a := range args {
			bounds[i] = a.Integer()
		}
	default:
		return nil, exec.ErrInvalidCall(errors.New("range wants one to three integers"))
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return nil, exec.ErrInvalidCall(errors.New("range's step is 0"))
	}
	var out []int
	for i := start; (step > 0 && i < stop) || (step < 0 && i > stop); i += step {
		if len(out) == maxRange {
			return nil, exec.ErrInvalidCall(fmt.Errorf("range is longer than %d", maxRange))
		}
		out = append(out, i)
	}
	return out, nil
}

// tojson is Python's json.dumps without escaping of HTML or non-ASCII: separators have a space. Keys are sorted.
func tojson(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	indent, err := indentOf(params)
	if err != nil {
		return exec.AsValue(exec.ErrInvalidCall(err))
	}
	var compact bytes.Buffer
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in.ToGoSimpleType(false)); err != nil {
		return exec.AsValue(fmt.Errorf("tojson: %w", err))
	}
	text := bytes.TrimSpace(compact.Bytes())
	if indent >= 0 {
		var out bytes.Buffer
		if err := json.Indent(&out, text, "", strings.Repeat(" ", indent)); err != nil {
			return exec.AsValue(fmt.Errorf("tojson: %w", err))
		}
		return exec.AsSafeValue(out.String())
	}
	return exec.AsSafeValue(spaced(text))
}

// indentOf returns the indent argument of tojson, -1 if there is none.
func indentOf(params *exec.VarArgs) (int, error) {
	v, ok := params.KwArgs["indent"]
	if !ok && len(params.Args) > 0 {
		v, ok = params.Args[0], true
	}
	if !ok || v.IsNil() {
		return -1, nil
	}
	if !v.IsInteger() || v.Integer() < 0 || v.Integer() > 16 {
		return 0, fmt.Errorf("tojson's indent is %s, want 0 to 16", v.String())
	}
	return v.Integer(), nil
}

// spaced puts a space after each separator of compact JSON, as Python does.
func spaced(text []byte) string {
	out := make([]byte, 0, len(text)+len(text)/8)
	inString, escaped := false, false
	for _, c := range text {
		out = append(out, c)
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case !inString && (c == ',' || c == ':'):
			out = append(out, ' ')
		}
	}
	return string(out)
}

// strftime formats a time by C's directives, those that templates use; others stay as they are.
func strftime(t time.Time, layout string) string {
	var out strings.Builder
	for i := 0; i < len(layout); i++ {
		if layout[i] != '%' || i+1 == len(layout) {
			out.WriteByte(layout[i])
			continue
		}
		i++
		switch c := layout[i]; c {
		case '%':
			out.WriteByte('%')
		case 'j':
			fmt.Fprintf(&out, "%03d", t.YearDay())
		case 'u':
			out.WriteString(strconv.Itoa((int(t.Weekday())+6)%7 + 1))
		default:
			if l, ok := directives[c]; ok {
				out.WriteString(t.Format(l))
				continue
			}
			out.WriteByte('%')
			out.WriteByte(c)
		}
	}
	return out.String()
}

// directives are Go's layouts of C's.
var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'B': "January", 'b': "Jan", 'd': "02", 'e': "_2",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'A': "Monday", 'a': "Mon",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'Z': "MST", 'z': "-0700",
}

// replace is Python's str.replace.
func replace(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	if n := len(args.Args); n < 2 || n > 3 || len(args.KwArgs) > 0 {
		return nil, exec.ErrInvalidCall(errors.New("replace wants what, by what, and how often"))
	}
	most := -1
	if len(args.Args) == 3 {
		most = args.Args[2].Integer()
	}
	return strings.Replace(self, args.Args[0].String(), args.Args[1].String(), most), nil
}
