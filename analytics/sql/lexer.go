package sql

import "strings"

// tokenKind tells what part of a text a token is.
type tokenKind int

const (
	code        tokenKind = iota // anything else
	separator                    // ;
	placeholder                  // {name:Type}
	comment                      // to the end of the line, or /* */
	quoted                       // a string, a quoted name, or a heredoc
)

// token is a piece of text; the tokens of a text concatenate to it.
type token struct {
	kind tokenKind
	text string
}

// tokens splits text as far as is needed to tell code from quotes and comments. What
// is not closed extends to the end: the server will say so better.
func tokens(text string) []token {
	var all []token
	start := 0 // of the code not emitted yet
	emit := func(kind tokenKind, from, to int) {
		if start < from {
			all = append(all, token{code, text[start:from]})
		}
		all = append(all, token{kind, text[from:to]})
		start = to
	}
	for i := 0; i < len(text); {
		rest := text[i:]
		end, kind := len(text), comment
		switch c := text[i]; {
		case strings.HasPrefix(rest, "--"), c == '#' && (strings.HasPrefix(rest, "# ") || strings.HasPrefix(rest, "#!")):
			if n := strings.IndexByte(rest, '\n'); n >= 0 {
				end = i + n + 1
			}
		case strings.HasPrefix(rest, "/*"):
			if n := strings.Index(rest[2:], "*/"); n >= 0 {
				end = i + n + 4
			}
		case c == '\'' || c == '"' || c == '`':
			kind, end = quoted, i+closingQuote(rest)
		case c == '$':
			tag := heredocTag(rest)
			if tag == "" {
				i++
				continue
			}
			kind = quoted
			if n := strings.Index(rest[len(tag):], tag); n >= 0 {
				end = i + n + 2*len(tag)
			}
		case c == ';':
			kind, end = separator, i+1
		case c == '{':
			n := placeholderLen(rest)
			if n == 0 {
				i++
				continue
			}
			kind, end = placeholder, i+n
		default:
			i++
			continue
		}
		emit(kind, i, end)
		i = end
	}
	if start < len(text) {
		all = append(all, token{code, text[start:]})
	}
	return all
}

// closingQuote returns the length of the quotation that s begins with. A doubled quote
// needs no care: it reads as two adjacent quotations.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return len(s)
}

// heredocTag returns the $tag$ that s begins with, or "".
func heredocTag(s string) string {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '$':
			return s[:i+1]
		case !wordByte(c):
			return ""
		}
	}
	return ""
}

// placeholderLen returns the length of the {name:Type} that s begins with, or 0, as
// for the map {'a':1}.
func placeholderLen(s string) int {
	i := 1
	for i < len(s) && wordByte(s[i]) {
		i++
	}
	if i == 1 || i == len(s) || s[i] != ':' {
		return 0
	}
	end := strings.IndexByte(s, '}')
	if end <= i+1 {
		return 0
	}
	return end + 1
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// Statements splits text at its semicolons and drops what is empty but for comments.
func Statements(text string) []string {
	var all []string
	var b strings.Builder
	empty := true
	flush := func() {
		if !empty {
			all = append(all, strings.TrimSpace(b.String()))
		}
		b.Reset()
		empty = true
	}
	for _, t := range tokens(text) {
		if t.kind == separator {
			flush()
			continue
		}
		b.WriteString(t.text)
		if t.kind != comment && strings.TrimSpace(t.text) != "" {
			empty = false
		}
	}
	flush()
	return all
}

// Placeholder is a value that the server binds: {name:Type}.
type Placeholder struct{ Name, Type string }

// Placeholders returns the placeholders of text in order of first use, each once. One
// that is used again with another type is returned again.
func Placeholders(text string) []Placeholder {
	var all []Placeholder
	seen := map[Placeholder]bool{}
	for _, t := range tokens(text) {
		if t.kind != placeholder {
			continue
		}
		name, typ, _ := strings.Cut(t.text[1:len(t.text)-1], ":")
		p := Placeholder{Name: name, Type: strings.TrimSpace(typ)}
		if !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all
}
