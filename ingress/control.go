package ingress

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// controlNames are the names of a vocabulary's control tokens, such as <|im_end|>. A chat template writes them, and they
// must become tokens; a client that writes them means text, or means harm: a message with <|im_end|> in it could end its
// turn and begin another one, of the system for instance. So each such name in a message is cut after its first
// character by a mark that templates pass on, and the prompt is tokenized in the pieces between the marks, none of which
// has the whole name. It is immutable.
type controlNames struct {
	names  []string // sorted; none is a prefix of another
	begins [256]bool
}

// cut is the mark: a character that Unicode keeps free for such inner use. Where a client's text has it, it is doubled.
const cut = "\ufdd0"

// newControlNames takes names in any order. Those of a single character are left out: they cannot be cut.
func newControlNames(names []string) *controlNames {
	c := &controlNames{}
	names = slices.Clone(names)
	slices.Sort(names)
	for _, n := range names {
		if utf8.RuneCountInString(n) < 2 || strings.Contains(n, cut) {
			continue
		}
		// What begins with another name is cut where that one is.
		if len(c.names) > 0 && strings.HasPrefix(n, c.names[len(c.names)-1]) {
			continue
		}
		c.names = append(c.names, n)
		c.begins[n[0]] = true
	}
	return c
}

// at reports whether text begins with a name.
func (c *controlNames) at(text string) bool {
	if !c.begins[text[0]] {
		return false
	}
	// No name is a prefix of another: only the last one that is not behind text can be a prefix of it.
	i, found := slices.BinarySearch(c.names, text)
	return found || i > 0 && strings.HasPrefix(text, c.names[i-1])
}

// count is how many names are in a text.
func (c *controlNames) count(text string) int {
	n := 0
	for i := range len(text) {
		if c.at(text[i:]) {
			n++
		}
	}
	return n
}

// mark cuts each name in a client's text. Most texts have none and are returned as they are.
func (c *controlNames) mark(text string) string {
	text = strings.ReplaceAll(text, cut, cut+cut)
	var out strings.Builder
	copied := 0
	for i := range len(text) {
		if !c.at(text[i:]) {
			continue
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		out.WriteString(text[copied : i+n])
		out.WriteString(cut)
		copied = i + n
	}
	if copied == 0 {
		return text
	}
	out.WriteString(text[copied:])
	return out.String()
}

// pieces undoes the marks of a rendered text: it returns the parts between them, none empty.
func pieces(text string) []string {
	var all []string
	var piece strings.Builder
	add := func() {
		if piece.Len() > 0 {
			all = append(all, piece.String())
			piece.Reset()
		}
	}
	for {
		before, after, found := strings.Cut(text, cut)
		if !found {
			break
		}
		piece.WriteString(before)
		if text, found = strings.CutPrefix(after, cut); found { // the client's own
			piece.WriteString(cut)
		} else {
			add()
		}
	}
	piece.WriteString(text)
	add()
	return all
}
