package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// node is a JSON value with the order of its members kept.
type node struct {
	kind    kind
	text    string // of a string, its value; of a number, as it was written
	items   []*node
	members []member

	// Where it stands. Its path is written when it is asked for: a long key would be in the path of everything below it.
	parent *node  // nil: it is the whole
	key    string // in a parent that is an object
	index  int    // in a parent that is an array
}

type member struct {
	key   string
	value *node
}

type kind byte

const (
	null kind = iota
	yes
	no
	number
	str
	array
	object
)

func (k kind) String() string {
	return [...]string{"null", "true", "false", "a number", "a string", "an array", "an object"}[k]
}

// get returns the member of that name, or nil.
func (n *node) get(key string) *node {
	for i := range n.members {
		if n.members[i].key == key {
			return n.members[i].value
		}
	}
	return nil
}

// parse reads one JSON text.
func parse(data []byte) (*node, error) {
	if len(data) > MaxSchemaBytes {
		return nil, fail("#", "it has %d bytes, allowed are %d", len(data), MaxSchemaBytes)
	}
	if !utf8.Valid(data) {
		return nil, fail("#", "it is not UTF-8")
	}
	p := parser{json: json.NewDecoder(bytes.NewReader(data))}
	p.json.UseNumber()
	n := &node{}
	if err := p.value(n, 0); err != nil {
		return nil, err
	}
	if _, err := p.json.Token(); !errors.Is(err, io.EOF) {
		return nil, fail("#", "something follows it")
	}
	return n, nil
}

// parser reads the values of one JSON text.
type parser struct {
	json  *json.Decoder
	nodes int // so far
}

// value reads the next value into a node that knows where it stands.
func (p *parser) value(n *node, depth int) error {
	if p.nodes++; p.nodes > MaxNodes {
		return n.fail("the schema has more than %d values", MaxNodes)
	}
	t, err := p.json.Token()
	if err != nil {
		return n.fail("it is not JSON")
	}
	switch t := t.(type) {
	case nil:
		n.kind = null
	case bool:
		n.kind = no
		if t {
			n.kind = yes
		}
	case json.Number:
		n.kind, n.text = number, t.String()
	case string:
		n.kind, n.text = str, t
	case json.Delim:
		if depth == MaxDepth {
			return n.fail("it is nested deeper than %d", MaxDepth)
		}
		if t == '[' {
			n.kind = array
			return p.items(n, depth)
		}
		n.kind = object
		return p.members(n, depth)
	}
	return nil
}

func (p *parser) items(n *node, depth int) error {
	for p.json.More() {
		item := &node{parent: n, index: len(n.items)}
		if err := p.value(item, depth+1); err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	if _, err := p.json.Token(); err != nil {
		return n.fail("it is not JSON")
	}
	return nil
}

func (p *parser) members(n *node, depth int) error {
	seen := map[string]bool{}
	for p.json.More() {
		t, err := p.json.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return n.fail("it is not JSON")
		}
		if seen[key] {
			return n.fail("it has %q twice", clip(key))
		}
		seen[key] = true
		v := &node{parent: n, key: key}
		if err := p.value(v, depth+1); err != nil {
			return err
		}
		n.members = append(n.members, member{key, v})
	}
	if _, err := p.json.Token(); err != nil {
		return n.fail("it is not JSON")
	}
	return nil
}

// path returns the JSON pointer of where a node stands, # for the whole and for nil.
func (n *node) path() string {
	var steps []string // from here to the whole
	for ; n != nil && n.parent != nil; n = n.parent {
		if n.parent.kind == array {
			steps = append(steps, strconv.Itoa(n.index))
		} else {
			steps = append(steps, pointer.Replace(n.key))
		}
	}
	slices.Reverse(steps)
	return strings.Join(append([]string{"#"}, steps...), "/")
}

// fail is an error about a node.
func (n *node) fail(format string, args ...any) error { return fail(n.path(), format, args...) }

// pointer escapes a key for a JSON pointer (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// appendJSON writes a value without white space, members in their order.
func (n *node) appendJSON(dst []byte) []byte {
	switch n.kind {
	case null:
		return append(dst, "null"...)
	case yes, no:
		return strconv.AppendBool(dst, n.kind == yes)
	case number:
		return append(dst, n.text...)
	case str:
		return appendString(dst, n.text)
	case array:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i, m := range n.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, m.key), ':')
		dst = m.value.appendJSON(dst)
	}
	return append(dst, '}')
}

// appendString writes a JSON string with as few escapes as JSON needs.
func appendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always has an encoding
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// Error says which part of a schema cannot be served, and why.
type Error struct {
	Path   string // JSON pointer into the schema, from #
	Reason string
}

// Error implements error; it may be shown to whoever wrote the schema.
func (e *Error) Error() string { return e.Path + ": " + e.Reason }

func fail(path, format string, args ...any) error {
	return &Error{Path: clip(path), Reason: fmt.Sprintf(format, args...)}
}

// clip shortens what is quoted.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
