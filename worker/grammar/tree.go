package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	path    string // JSON pointer of where it stands, # for the whole
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
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := value(d, "#", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fail("#", "something follows it")
	}
	return n, nil
}

func value(d *json.Decoder, path string, depth int) (*node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, fail(path, "it is not JSON")
	}
	n := &node{path: path}
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
			return nil, fail(path, "it is nested deeper than %d", MaxDepth)
		}
		if t == '[' {
			n.kind = array
			return n, n.readItems(d, depth)
		}
		n.kind = object
		return n, n.readMembers(d, depth)
	}
	return n, nil
}

func (n *node) readItems(d *json.Decoder, depth int) error {
	for d.More() {
		item, err := value(d, n.path+"/"+strconv.Itoa(len(n.items)), depth+1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	if _, err := d.Token(); err != nil {
		return fail(n.path, "it is not JSON")
	}
	return nil
}

func (n *node) readMembers(d *json.Decoder, depth int) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return fail(n.path, "it is not JSON")
		}
		if seen[key] {
			return fail(n.path, "it has %q twice", clip(key))
		}
		seen[key] = true
		v, err := value(d, n.path+"/"+pointer.Replace(key), depth+1)
		if err != nil {
			return err
		}
		n.members = append(n.members, member{key, v})
	}
	if _, err := d.Token(); err != nil {
		return fail(n.path, "it is not JSON")
	}
	return nil
}

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
