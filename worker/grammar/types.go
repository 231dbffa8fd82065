package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// keywords of each type.
var keywords = map[string][]string{
	"object":  {"properties", "required", "additionalProperties"},
	"array":   {"items", "minItems", "maxItems"},
	"string":  {"minLength", "maxLength", "format"},
	"number":  {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"}, // a format is of strings alone
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"},
	"boolean": nil,
	"null":    nil,
}

// typesOf returns the types that a schema names, nil if it names none.
func typesOf(n *node) ([]string, error) {
	v := n.get("type")
	if v == nil {
		return nil, nil
	}
	list := []*node{v}
	if v.kind == array {
		list = v.items
	}
	var types []string
	for _, t := range list {
		if _, known := keywords[t.text]; t.kind != str || !known {
			return nil, t.fail("expected the name of a type")
		}
		if slices.Contains(types, t.text) {
			return nil, t.fail("it names a type twice")
		}
		types = append(types, t.text)
	}
	if len(types) == 0 {
		return nil, v.fail("it names no type")
	}
	return types, nil
}

// typed is a schema of types and their keywords. Without a type, keywords of one type imply it.
func (c *compiler) typed(n *node) (string, error) {
	types, err := typesOf(n)
	if err != nil {
		return "", err
	}
	if types == nil {
		switch {
		case n.get("properties") != nil || n.get("required") != nil || n.get("additionalProperties") != nil:
			types = []string{"object"}
		case n.get("items") != nil:
			types = []string{"array"}
		default:
			if err := c.only(n); err != nil {
				return "", err
			}
			return c.use("value"), nil
		}
	}
	allowed := []string{"type"}
	for _, t := range types {
		allowed = append(allowed, keywords[t]...)
	}
	if err := c.only(n, allowed...); err != nil {
		return "", err
	}
	var all []string
	for _, t := range types {
		var body string
		switch t {
		case "object":
			body, err = c.consumed(func() (string, error) { return c.object(n) })
		case "array":
			body, err = c.consumed(func() (string, error) { return c.array(n) })
		case "string":
			body, err = c.string(n)
		case "number", "integer":
			body, err = c.number(n, t == "integer")
		case "boolean":
			body = `"true" | "false"`
		case "null":
			body = `"null"`
		}
		if err != nil {
			return "", err
		}
		all = append(all, body)
	}
	return strings.Join(all, " | "), nil
}

// group puts alternatives into parentheses.
func group(body string) string {
	if strings.ContainsAny(body, " |") {
		return "(" + body + ")"
	}
	return body
}

func (c *compiler) object(n *node) (string, error) {
	required, err := c.required(n)
	if err != nil {
		return "", err
	}
	properties := n.get("properties")
	if properties != nil && properties.kind != object {
		return "", properties.fail("expected an object, got %v", properties.kind)
	}
	if properties != nil && len(properties.members) > MaxAlternatives {
		return "", properties.fail("it has more than %d properties", MaxAlternatives)
	}
	extra := n.get("additionalProperties")
	if properties == nil || len(properties.members) == 0 {
		if len(required) > 0 {
			return "", n.get("required").fail("it names properties that 'properties' does not describe")
		}
		return c.anyObject(extra)
	}
	// In properties order. parts[i] is a property with its value.
	parts, must := make([]string, 0, len(properties.members)), make([]bool, 0, len(properties.members))
	for _, m := range properties.members {
		body, err := c.schema(m.value)
		if err != nil {
			return "", err
		}
		parts = append(parts, quote(string(appendString(nil, m.key))+":")+" "+c.use("ws")+" "+group(body))
		must = append(must, required[m.key])
	}
	if v := n.get("required"); v != nil {
		for _, key := range v.items {
			if properties.get(key.text) == nil {
				return "", key.fail("'%s' is not among 'properties'", clip(key.text))
			}
		}
	}
	body, err := c.sequence(n, parts, must)
	if err != nil {
		return "", err
	}
	return `"{" ws ` + body + ` "}"`, nil
}

// sequence writes properties with commas between those that are there.
func (c *compiler) sequence(n *node, parts []string, must []bool) (string, error) {
	const comma = `"," ws `
	first := 0
	for first < len(must) && !must[first] {
		first++
	}
	var b strings.Builder
	if first < len(parts) { // commas after what comes before the first that must be there, and before what comes after it
		for _, p := range parts[:first] {
			b.WriteString("(" + p + ` "," ws)? `)
		}
		b.WriteString(parts[first])
		for i := first + 1; i < len(parts); i++ {
			if must[i] {
				b.WriteString(" " + comma + parts[i])
			} else {
				b.WriteString(" (" + comma + parts[i] + ")?")
			}
		}
		b.WriteString(" ws")
		return b.String(), nil
	}
	// None must be there: rest is what may follow the one with which the object begins.
	rest, all := "", make([]string, len(parts))
	for i := len(parts) - 1; i >= 0; i-- {
		name, err := c.add(n, "property", parts[i])
		if err != nil {
			return "", err
		}
		all[i] = strings.TrimSpace(name + " " + rest)
		if rest, err = c.add(n, "rest", strings.TrimSpace("("+comma+name+")? "+rest)); err != nil {
			return "", err
		}
	}
	return "((" + strings.Join(all, " | ") + ") ws)?", nil
}

// required returns the names of the properties that must be there.
func (c *compiler) required(n *node) (map[string]bool, error) {
	v := n.get("required")
	if v == nil {
		return nil, nil
	}
	if v.kind != array {
		return nil, v.fail("expected an array, got %v", v.kind)
	}
	all := map[string]bool{}
	for _, name := range v.items {
		if name.kind != str {
			return nil, name.fail("expected a string, got %v", name.kind)
		}
		all[name.text] = true
	}
	return all, nil
}

// anyObject has properties of any name.
func (c *compiler) anyObject(of *node) (string, error) {
	switch {
	case of == nil || of.kind == yes:
		return c.use("object"), nil
	case of.kind == no:
		c.use("ws")
		return `"{" ws "}"`, nil
	}
	body, err := c.schema(of)
	if err != nil {
		return "", err
	}
	c.use("ws")
	name, err := c.add(of, "member", c.use("string")+` ":" ws `+group(body))
	if err != nil {
		return "", err
	}
	return `"{" ws (` + name + ` ("," ws ` + name + `)* ws)? "}"`, nil
}

func (c *compiler) array(n *node) (string, error) {
	lo, hi, err := c.bounds(n, "minItems", "maxItems")
	if err != nil {
		return "", err
	}
	c.use("ws")
	if hi == 0 {
		return `"[" ws "]"`, nil
	}
	item := "value"
	if v := n.get("items"); v != nil {
		body, err := c.schema(v)
		if err != nil {
			return "", err
		}
		if item, err = c.add(v, "item", body); err != nil {
			return "", err
		}
	} else {
		c.use(item)
	}
	body := item + ` ("," ws ` + item + ")" + repeat(max(lo-1, 0), hi-1) + " ws"
	if lo == 0 {
		body = "(" + body + ")?"
	}
	return `"[" ws ` + body + ` "]"`, nil
}

func (c *compiler) string(n *node) (string, error) {
	lo, hi, err := c.bounds(n, "minLength", "maxLength")
	if err != nil {
		return "", err
	}
	v := n.get("format")
	if v == nil {
		if lo == 0 && hi < 0 {
			return c.use("string"), nil
		}
		return `"\"" ` + c.use("char") + repeat(lo, hi) + ` "\""`, nil
	}
	f, known := formats[v.text]
	switch {
	case v.kind != str || !known:
		return "", v.fail("this format is not supported; date, time, date-time, uuid, email and ipv4 are")
	case n.get("minLength") != nil || n.get("maxLength") != nil:
		return "", v.fail("a format beside a length is not supported")
	}
	for _, name := range f.uses {
		c.use(name)
	}
	return f.body, c.spend(n, 64) // about what the longest repeats
}

// bounds reads a least and a greatest number; hi is -1 if there is none.
func (c *compiler) bounds(n *node, least, most string) (lo, hi int, err error) {
	if lo, err = count(n, least, 0); err != nil {
		return 0, 0, err
	}
	if hi, err = count(n, most, -1); err != nil {
		return 0, 0, err
	}
	if hi >= 0 && hi < lo {
		return 0, 0, n.get(most).fail("%d is below '%s', %d", hi, least, lo)
	}
	return lo, hi, c.spend(n, max(lo, hi))
}

func count(n *node, key string, otherwise int) (int, error) {
	v := n.get(key)
	if v == nil {
		return otherwise, nil
	}
	i, err := strconv.Atoi(v.text)
	if v.kind != number || err != nil || i < 0 || i > MaxRepeat {
		return 0, v.fail("expected a whole number in [0, %d]", MaxRepeat)
	}
	return i, nil
}

// repeat is GBNF's suffix for lo to hi times, without end if hi < 0.
func repeat(lo, hi int) string {
	switch {
	case hi < 0 && lo == 0:
		return "*"
	case hi < 0:
		return "{" + strconv.Itoa(lo) + ",}"
	}
	return "{" + strconv.Itoa(lo) + "," + strconv.Itoa(hi) + "}"
}
