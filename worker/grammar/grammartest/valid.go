package grammartest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Prefix reports whether a text is the beginning of a JSON text, or a whole one.
func Prefix(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	for depth, n := 0, 0; ; n++ {
		t, err := d.Token()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return true
		}
		if err != nil {
			return false
		}
		if t == json.Delim('{') || t == json.Delim('[') {
			depth++
		} else if t == json.Delim('}') || t == json.Delim(']') {
			depth--
		}
		if depth == 0 && d.More() {
			return false
		}
	}
}

// Valid returns what is wrong with a JSON text under a schema, nil if nothing is.
func Valid(schema, text string) error {
	var s, v any
	for _, x := range []struct {
		text string
		into *any
	}{{schema, &s}, {text, &v}} {
		if err := json.Unmarshal([]byte(x.text), x.into); err != nil {
			return fmt.Errorf("%w in %s", err, x.text)
		}
	}
	return check(s, s, v)
}

var formats = map[string]func(string) bool{
	"date":      func(s string) bool { _, err := time.Parse(time.DateOnly, s); return err == nil },
	"time":      func(s string) bool { return rfc3339("2000-01-01T" + s) },
	"date-time": rfc3339,
	"uuid":      regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString,
	"email":     regexp.MustCompile(`^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$`).MatchString,
	"ipv4":      func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
}

func rfc3339(s string) bool { _, err := time.Parse(time.RFC3339Nano, s); return err == nil }

// check knows the keywords that package grammar knows.
func check(root, schema, v any) error {
	s, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			return errors.New("false allows nothing")
		}
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		at := root
		for _, key := range strings.Split(ref, "/")[1:] {
			at = at.(map[string]any)[key]
		}
		return check(root, at, v)
	}
	if c, ok := s["const"]; ok && !reflect.DeepEqual(c, v) {
		return fmt.Errorf("%v is not %v", v, c)
	}
	if e, ok := s["enum"].([]any); ok && !slices.ContainsFunc(e, func(x any) bool { return reflect.DeepEqual(x, v) }) {
		return fmt.Errorf("%v is none of %v", v, e)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		list, ok := s[key].([]any)
		if !ok {
			continue
		}
		var errs []error
		for _, x := range list {
			errs = append(errs, check(root, x, v))
		}
		if !slices.Contains(errs, nil) {
			return errors.Join(errs...)
		}
	}
	var types []any
	switch t := s["type"].(type) {
	case string:
		types = []any{t}
	case []any:
		types = t
	}
	if types != nil && !slices.ContainsFunc(types, func(t any) bool { return is(v, t) }) {
		return fmt.Errorf("%v is no %v", v, types)
	}
	return keywords(root, s, v)
}

func is(v, typ any) bool {
	switch x := v.(type) {
	case nil:
		return typ == "null"
	case bool:
		return typ == "boolean"
	case string:
		return typ == "string"
	case float64:
		return typ == "number" || typ == "integer" && x == math.Trunc(x)
	case []any:
		return typ == "array"
	}
	return typ == "object"
}

func keywords(root any, s map[string]any, v any) error {
	between := func(what string, x float64, least, most string) error {
		if lo, ok := s[least].(float64); ok && x < lo {
			return fmt.Errorf("%s %v is below %v", what, x, lo)
		}
		if hi, ok := s[most].(float64); ok && x > hi {
			return fmt.Errorf("%s %v is above %v", what, x, hi)
		}
		return nil
	}
	switch x := v.(type) {
	case float64:
		if lo, ok := s["exclusiveMinimum"].(float64); ok && x <= lo {
			return fmt.Errorf("%v is not above %v", x, lo)
		}
		if hi, ok := s["exclusiveMaximum"].(float64); ok && x >= hi {
			return fmt.Errorf("%v is not below %v", x, hi)
		}
		return between("number", x, "minimum", "maximum")
	case string:
		if f, ok := s["format"].(string); ok && !formats[f](x) {
			return fmt.Errorf("%q is no %s", x, f)
		}
		return between("length", float64(utf8.RuneCountInString(x)), "minLength", "maxLength")
	case []any:
		for _, item := range x {
			if err := check(root, s["items"], item); err != nil {
				return err
			}
		}
		return between("length", float64(len(x)), "minItems", "maxItems")
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, ok := x[name.(string)]; !ok {
				return fmt.Errorf("no %v", name)
			}
		}
		for name, value := range x {
			of, known := properties[name]
			if !known {
				of = s["additionalProperties"]
			}
			if err := check(root, of, value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
