package grammar

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cadence-slo/cadence/schema"
)

// Bounds of a schema and its grammar. A grammar is parsed for every request that uses it, and each state of a sequence
// refers into it.
const (
	MaxSchemaBytes  = 64 << 10
	MaxGrammarBytes = schema.MaxGrammar
	MaxNodes        = 16 << 10 // JSON values in the schema: in memory each is some hundred bytes
	MaxDepth        = 64       // of arrays and objects in the schema
	MaxRepeat       = 1000     // of minItems, maxItems, minLength and maxLength
	MaxParts        = 10000    // rules, and the repetitions in them
	MaxAlternatives = 256      // of an enum, an anyOf, the properties of an object
	MaxReferences   = 256      // schemas that $ref points to
	MaxStates       = 64       // that a grammar may be in at once, because alternatives begin alike: see width
)

// Any is the schema of a JSON object about which nothing else is said.
const Any = `{"type":"object"}`

// Compile returns the grammar of a JSON Schema, at most MaxGrammarBytes long, with the start symbol root. Errors are *Error.
func Compile(text []byte) (string, error) {
	root, err := parse(text)
	if err != nil {
		return "", err
	}
	c := &compiler{root: root, names: map[*node]string{}, points: map[*node]*node{}, shared: map[string]bool{}, first: map[string][]alias{}}
	body, err := c.schema(root)
	if err != nil {
		return "", err
	}
	if err := c.finite(); err != nil {
		return "", err
	}
	if err := c.narrow(); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("root ::= " + body + "\n")
	for _, r := range c.rules {
		b.WriteString(r.name + " ::= " + r.body + "\n")
	}
	for _, p := range primitives {
		if c.shared[p.name] {
			b.WriteString(p.name + " ::= " + p.body + "\n")
		}
	}
	if b.Len() > MaxGrammarBytes {
		return "", fail("#", "its grammar has %d bytes, allowed are %d", b.Len(), MaxGrammarBytes)
	}
	return b.String(), nil
}

// primitives are the rules that all schemas share, each after those that use it.
var primitives = []struct {
	name, body string
	uses       []string
}{
	{"value", `object | array | string | number | "true" | "false" | "null"`, []string{"object", "array", "string", "number"}},
	{"object", `"{" ws (string ":" ws value ("," ws string ":" ws value)* ws)? "}"`, []string{"value", "string", "ws"}},
	{"array", `"[" ws (value ("," ws value)* ws)? "]"`, []string{"value", "ws"}},
	{"string", `"\"" char* "\""`, []string{"char"}},
	{"number", `"-"? whole ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?`, []string{"whole"}},
	{"integer", `"0" | "-"? [1-9] [0-9]{0,14}`, nil},
	{"whole", `"0" | [1-9] [0-9]{0,14}`, nil},
	// Half of a surrogate pair is no character.
	{"char", `[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))`, nil},
	{"ws", `(" " | "\n" [ \t]{0,16})?`, nil},
	{"date", `[0-9]{4} "-" (("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]) | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30") | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))`, nil},
	{"time", `clock ":" [0-5] [0-9] ("." [0-9]{1,6})? ("Z" | [-+] clock)`, []string{"clock"}},
	{"clock", `([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]`, nil},
	{"byte", `[0-9] | [1-9] [0-9] | "1" [0-9] [0-9] | "2" [0-4] [0-9] | "25" [0-5]`, nil},
	{"hex", `[0-9a-f]`, nil},
}

// formats are those of strings, by the rules that they use.
var formats = map[string]struct {
	body string
	uses []string
}{
	"date":      {`"\"" date "\""`, []string{"date"}},
	"time":      {`"\"" time "\""`, []string{"time"}},
	"date-time": {`"\"" date "T" time "\""`, []string{"date", "time"}},
	"uuid":      {`"\"" hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12} "\""`, []string{"hex"}},
	"email":     {`"\"" [a-z0-9] [a-z0-9._+-]{0,30} [a-z0-9] "@" ([a-z0-9] [a-z0-9-]{0,20} [a-z0-9] "."){1,3} [a-z]{2,10} "\""`, nil},
	"ipv4":      {`"\"" byte "." byte "." byte "." byte "\""`, []string{"byte"}},
}

// rule is a line of the grammar.
type rule struct{ name, body string }

// compiler writes the grammar of one schema.
type compiler struct {
	root   *node
	rules  []rule
	names  map[*node]string // rules of what $ref points to
	named  []*node          // the same nodes, in the order of their names
	points map[*node]*node  // what each $ref points to
	shared map[string]bool  // primitives in use
	parts  int
	// first lists, for each rule of names, the rules of names that it may begin with.
	first   map[string][]alias
	current *alias // the rule being written, as long as nothing stands before in it
}

// alias is a reference that consumes nothing before it.
type alias struct {
	name string
	at   *node // the $ref
}

// use marks a primitive and what it needs, and returns its name.
func (c *compiler) use(name string) string {
	if c.shared[name] {
		return name
	}
	c.shared[name] = true
	for _, p := range primitives {
		if p.name == name {
			for _, other := range p.uses {
				c.use(other)
			}
		}
	}
	return name
}

// spend counts parts of the grammar.
func (c *compiler) spend(n *node, parts int) error {
	if c.parts += parts; c.parts > MaxParts {
		return n.fail("the schema is too large: more than %d rules and repetitions", MaxParts)
	}
	return nil
}

// add makes a rule of a body that is used more than once.
func (c *compiler) add(n *node, hint, body string) (string, error) {
	if err := c.spend(n, 1); err != nil {
		return "", err
	}
	name := hint + "-" + strconv.Itoa(len(c.rules))
	c.rules = append(c.rules, rule{name, body})
	return name, nil
}

// consumed says that something stands before what is written next.
func (c *compiler) consumed(f func() (string, error)) (string, error) {
	before := c.current
	c.current = nil
	body, err := f()
	c.current = before
	return body, err
}

// annotations say nothing about which instances are valid.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "examples": true, "example": true, "$schema": true, "$id": true,
	"$comment": true, "$defs": true, "definitions": true, "deprecated": true, "readOnly": true, "writeOnly": true,
}

// understood are the keywords that can stand somewhere; any other is an error wherever it stands.
var understood = func() map[string]bool {
	all := map[string]bool{"type": true, "$ref": true, "const": true, "enum": true, "anyOf": true, "oneOf": true, "allOf": true}
	for _, of := range keywords {
		for _, k := range of {
			all[k] = true
		}
	}
	return all
}()

// schema returns the right side of a rule for a schema: alternatives that are not in parentheses.
func (c *compiler) schema(n *node) (string, error) {
	if err := c.spend(n, 1); err != nil {
		return "", err
	}
	switch n.kind {
	case yes:
		return c.use("value"), nil
	case no:
		return "", n.fail("nothing satisfies false")
	case object:
	default:
		return "", n.fail("a schema is an object, and this is %v", n.kind)
	}
	for _, k := range []struct {
		key  string
		read func(n, v *node) (string, error)
		with string // another key that it may stand beside
	}{
		{"$ref", c.ref, ""},
		{"const", c.constant, "type"},
		{"enum", c.enum, "type"},
		{"anyOf", c.anyOf, ""},
		{"oneOf", c.anyOf, ""},
		{"allOf", c.allOf, ""},
	} {
		if v := n.get(k.key); v != nil {
			if err := c.only(n, k.key, k.with); err != nil {
				return "", err
			}
			return k.read(n, v)
		}
	}
	return c.typed(n)
}

// only checks that a schema has no keys but those given and annotations.
func (c *compiler) only(n *node, keys ...string) error {
	for _, m := range n.members {
		if annotations[m.key] {
			continue
		}
		found := false
		for _, k := range keys {
			found = found || k == m.key
		}
		if !found {
			beside := ""
			switch {
			case !understood[m.key]:
			case len(keys) > 0 && keys[0] != "":
				beside = " beside '" + keys[0] + "'"
			default:
				beside = " without 'type'"
			}
			return m.value.fail("'%s' is not supported%s", clip(m.key), beside)
		}
	}
	return nil
}

// ref returns a reference to the rule of what $ref points to, which is written when it comes for the first time.
func (c *compiler) ref(_, v *node) (string, error) {
	if v.kind != str {
		return "", v.fail("expected a string, got %v", v.kind)
	}
	target, err := c.resolve(v)
	if err != nil {
		return "", err
	}
	name, known := c.names[target]
	if !known {
		if len(c.names) == MaxReferences {
			return "", v.fail("the schema refers to more than %d others", MaxReferences)
		}
		name = fmt.Sprintf("ref-%d", len(c.names))
		c.names[target], c.named = name, append(c.named, target)
	}
	if c.current != nil {
		c.first[c.current.name] = append(c.first[c.current.name], alias{name, v})
	}
	if known {
		return name, nil
	}
	before := c.current
	c.current = &alias{name, v}
	body, err := c.schema(target)
	c.current = before
	if err != nil {
		return "", err
	}
	c.rules = append(c.rules, rule{name, body})
	return name, nil
}

// resolve finds what a $ref points to.
func (c *compiler) resolve(v *node) (*node, error) {
	if n := c.points[v]; n != nil {
		return n, nil
	}
	rest, ok := strings.CutPrefix(v.text, "#")
	if !ok || rest != "" && rest[0] != '/' {
		return nil, v.fail("'%s' is not supported: only references into the same schema, #/…, are", clip(v.text))
	}
	n := c.root
	for rest != "" {
		var key string
		key, rest, _ = strings.Cut(rest[1:], "/")
		if rest != "" {
			rest = "/" + rest
		}
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		var next *node
		if i, err := strconv.Atoi(key); err == nil && n.kind == array && i >= 0 && i < len(n.items) {
			next = n.items[i]
		} else {
			next = n.get(key)
		}
		if next == nil {
			return nil, v.fail("'%s' points to nothing", clip(v.text))
		}
		n = next
	}
	c.points[v] = n
	return n, nil
}

// finite refuses references that lead back to themselves before anything is written.
func (c *compiler) finite() error {
	const (
		busy = 1
		done = 2
	)
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		state[name] = busy
		for _, a := range c.first[name] {
			if state[a.name] == busy {
				return a.at.fail("the reference leads back to itself")
			}
			if state[a.name] != done {
				if err := visit(a.name); err != nil {
					return err
				}
			}
		}
		state[name] = done
		return nil
	}
	for _, r := range c.rules {
		if state[r.name] == 0 {
			if err := visit(r.name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *compiler) constant(n, v *node) (string, error) {
	if ok, err := c.matches(n, v); err != nil {
		return "", err
	} else if !ok {
		return "", v.fail("it is not of the type that the schema wants")
	}
	return quote(string(v.appendJSON(nil))), nil
}

func (c *compiler) enum(n, v *node) (string, error) {
	if v.kind != array {
		return "", v.fail("expected an array, got %v", v.kind)
	}
	var all []string
	seen := map[string]bool{}
	for _, item := range v.items {
		ok, err := c.matches(n, item)
		if err != nil {
			return "", err
		}
		text := string(item.appendJSON(nil))
		if !ok || seen[text] {
			continue
		}
		seen[text] = true
		all = append(all, quote(text))
	}
	if len(all) == 0 {
		return "", v.fail("no value of it can be")
	}
	if len(all) > MaxAlternatives {
		return "", v.fail("it has more than %d values", MaxAlternatives)
	}
	return strings.Join(all, " | "), c.spend(v, len(all))
}

// matches reports whether a value is of one of the types that the schema names, if it names any.
func (c *compiler) matches(n, v *node) (bool, error) {
	types, err := typesOf(n)
	if err != nil || types == nil {
		return err == nil, err
	}
	for _, t := range types {
		switch {
		case t == "null" && v.kind == null, t == "boolean" && (v.kind == yes || v.kind == no), t == "string" && v.kind == str,
			t == "array" && v.kind == array, t == "object" && v.kind == object, t == "number" && v.kind == number:
			return true, nil
		case t == "integer" && v.kind == number:
			if f, err := strconv.ParseFloat(v.text, 64); err == nil && f == math.Trunc(f) {
				return true, nil
			}
		}
	}
	return false, nil
}

func (c *compiler) anyOf(_, v *node) (string, error) {
	if v.kind != array || len(v.items) == 0 {
		return "", v.fail("expected an array of schemas")
	}
	if len(v.items) > MaxAlternatives {
		return "", v.fail("it has more than %d schemas", MaxAlternatives)
	}
	return c.alternatives(v.items)
}

func (c *compiler) alternatives(schemas []*node) (string, error) {
	var all []string
	for _, s := range schemas {
		body, err := c.schema(s)
		if err != nil {
			return "", err
		}
		all = append(all, body)
	}
	return strings.Join(all, " | "), nil
}

// allOf of one schema is how some tools write a reference with a description beside it.
func (c *compiler) allOf(_, v *node) (string, error) {
	if v.kind != array || len(v.items) != 1 {
		return "", v.fail("only an array of one schema is supported")
	}
	return c.schema(v.items[0])
}

// quote writes a text as a literal of GBNF.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\x%02X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
