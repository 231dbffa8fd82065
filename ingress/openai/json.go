package openai

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// reader walks one JSON text. Its methods leave pos behind what they read; an error ends the reading.
type reader struct {
	data  []byte
	pos   int
	depth int // of arrays and objects around pos
	limit int // of depth
}

// kind is what a value starts as.
type kind byte

const (
	kindNone   kind = iota // no value starts here
	kindNull               // null
	kindBool               // true or false
	kindNumber             // a number
	kindString             // a string
	kindArray              // [
	kindObject             // {
)

func (k kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

func (r *reader) space() {
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

// unexpected describes what stands at pos.
func (r *reader) unexpected(want string) *Error {
	if r.pos >= len(r.data) {
		return InvalidJSON("it ends at byte %d where %s was expected", r.pos, want)
	}
	c, _ := utf8.DecodeRune(r.data[r.pos:])
	return InvalidJSON("unexpected %s at byte %d where %s was expected", strconv.QuoteRune(c), r.pos, want)
}

// peek skips white space and returns the kind of the value that starts at pos.
func (r *reader) peek() kind {
	r.space()
	if r.pos >= len(r.data) {
		return kindNone
	}
	switch c := r.data[r.pos]; {
	case c == 'n':
		return kindNull
	case c == 't' || c == 'f':
		return kindBool
	case c == '-' || c >= '0' && c <= '9':
		return kindNumber
	case c == '"':
		return kindString
	case c == '[':
		return kindArray
	case c == '{':
		return kindObject
	}
	return kindNone
}

func (r *reader) open() *Error {
	if r.depth == r.limit {
		return InvalidJSON("arrays and objects are nested deeper than %d at byte %d", r.limit, r.pos)
	}
	r.depth++
	r.pos++
	return nil
}

// object reads an object, calling f with each key in turn; f must read the key's value.
func (r *reader) object(f func(key string) *Error) *Error {
	if r.peek() != kindObject {
		return r.unexpected("an object")
	}
	if err := r.open(); err != nil {
		return err
	}
	if r.space(); r.pos < len(r.data) && r.data[r.pos] == '}' {
		r.pos++
		r.depth--
		return nil
	}
	for {
		if r.peek() != kindString {
			return r.unexpected("a key in double quotes")
		}
		key, err := r.string()
		if err != nil {
			return err
		}
		if r.space(); r.pos >= len(r.data) || r.data[r.pos] != ':' {
			return r.unexpected("':'")
		}
		r.pos++
		if err := f(key); err != nil {
			return err
		}
		more, err := r.next('}', "',' or '}'")
		if err != nil || !more {
			return err
		}
	}
}

// array reads an array, calling f with each index in turn; f must read the element.
func (r *reader) array(f func(i int) *Error) *Error {
	if r.peek() != kindArray {
		return r.unexpected("an array")
	}
	if err := r.open(); err != nil {
		return err
	}
	if r.space(); r.pos < len(r.data) && r.data[r.pos] == ']' {
		r.pos++
		r.depth--
		return nil
	}
	for i := 0; ; i++ {
		if err := f(i); err != nil {
			return err
		}
		more, err := r.next(']', "',' or ']'")
		if err != nil || !more {
			return err
		}
	}
}

// next reads the comma before a further element (true) or the closing bracket (false).
func (r *reader) next(closing byte, want string) (bool, *Error) {
	r.space()
	if r.pos < len(r.data) {
		switch r.data[r.pos] {
		case ',':
			r.pos++
			return true, nil
		case closing:
			r.pos++
			r.depth--
			return false, nil
		}
	}
	return false, r.unexpected(want)
}

// literal reads null, true or false.
func (r *reader) literal(word string) *Error {
	if len(r.data)-r.pos < len(word) || string(r.data[r.pos:r.pos+len(word)]) != word {
		return r.unexpected(word)
	}
	r.pos += len(word)
	return nil
}

func (r *reader) bool() (bool, *Error) {
	if r.data[r.pos] == 't' {
		return true, r.literal("true")
	}
	return false, r.literal("false")
}

// number returns the text of a number, which aliases the body.
func (r *reader) number() ([]byte, *Error) {
	start := r.pos
	if r.data[r.pos] == '-' {
		r.pos++
	}
	switch {
	case r.pos < len(r.data) && r.data[r.pos] == '0':
		r.pos++
	case r.digits() == 0:
		return nil, r.unexpected("a digit")
	}
	if r.pos < len(r.data) && r.data[r.pos] == '.' {
		r.pos++
		if r.digits() == 0 {
			return nil, r.unexpected("a digit")
		}
	}
	if r.pos < len(r.data) && (r.data[r.pos] == 'e' || r.data[r.pos] == 'E') {
		r.pos++
		if r.pos < len(r.data) && (r.data[r.pos] == '+' || r.data[r.pos] == '-') {
			r.pos++
		}
		if r.digits() == 0 {
			return nil, r.unexpected("a digit")
		}
	}
	return r.data[start:r.pos], nil
}

func (r *reader) digits() (n int) {
	for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
		r.pos++
		n++
	}
	return n
}

// string reads a string. The result does not alias the body.
func (r *reader) string() (string, *Error) {
	r.pos++ // the opening quote
	start := r.pos
	for r.pos < len(r.data) && plainOrMultibyte(r.data[r.pos]) {
		r.pos++
	}
	if r.pos < len(r.data) && r.data[r.pos] == '"' {
		s := string(r.data[start:r.pos])
		r.pos++
		return s, nil
	}
	buf := append([]byte(nil), r.data[start:r.pos]...)
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			r.pos++
			return string(buf), nil
		case c == '\\':
			var err *Error
			if buf, err = r.escape(buf); err != nil {
				return "", err
			}
		case c < 0x20:
			return "", InvalidJSON("a raw control character (0x%02x) in a string at byte %d; write it as \\u%04x", c, r.pos, c)
		default:
			buf = append(buf, c)
			r.pos++
		}
	}
	return "", r.unexpected("the end of a string")
}

// plainOrMultibyte: the body was found to be UTF-8, so that bytes from 0x80 are whole characters.
func plainOrMultibyte(b byte) bool { return plain[b] || b >= utf8.RuneSelf }

func (r *reader) escape(buf []byte) ([]byte, *Error) {
	at := r.pos
	r.pos++
	if r.pos >= len(r.data) {
		return nil, r.unexpected("an escape")
	}
	c := r.data[r.pos]
	r.pos++
	switch c {
	case '"', '\\', '/':
		return append(buf, c), nil
	case 'b':
		return append(buf, '\b'), nil
	case 'f':
		return append(buf, '\f'), nil
	case 'n':
		return append(buf, '\n'), nil
	case 'r':
		return append(buf, '\r'), nil
	case 't':
		return append(buf, '\t'), nil
	case 'u':
		u, ok := r.hex4()
		if !ok {
			return nil, InvalidJSON("a \\u escape without four hexadecimal digits at byte %d", at)
		}
		if !utf16.IsSurrogate(u) {
			return utf8.AppendRune(buf, u), nil
		}
		if r.pos+1 < len(r.data) && r.data[r.pos] == '\\' && r.data[r.pos+1] == 'u' {
			r.pos += 2
			if low, ok := r.hex4(); ok {
				if pair := utf16.DecodeRune(u, low); pair != utf8.RuneError {
					return utf8.AppendRune(buf, pair), nil
				}
			}
		}
		return nil, InvalidJSON("a lone surrogate in a string at byte %d: it is half of a character", at)
	}
	return nil, InvalidJSON("an unknown escape in a string at byte %d", at)
}

func (r *reader) hex4() (rune, bool) {
	if len(r.data)-r.pos < 4 {
		return 0, false
	}
	var v rune
	for _, c := range r.data[r.pos : r.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			v = v<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	r.pos += 4
	return v, true
}

// skip reads a value of any kind and forgets it, but insists that it is valid.
func (r *reader) skip() *Error {
	_, err := r.neutral()
	return err
}

// neutral reads a value of any kind and reports whether it asks for nothing: null, false, 0, "", [] or {}.
func (r *reader) neutral() (bool, *Error) {
	switch r.peek() {
	case kindNull:
		return true, r.literal("null")
	case kindBool:
		b, err := r.bool()
		return !b, err
	case kindNumber:
		raw, err := r.number()
		if err != nil {
			return false, err
		}
		v, exact := integer(raw)
		return exact == whole && v == 0, nil
	case kindString:
		s, err := r.string()
		return s == "", err
	case kindArray:
		n := 0
		err := r.array(func(int) *Error { n++; return r.skip() })
		return n == 0, err
	case kindObject:
		n := 0
		err := r.object(func(string) *Error { n++; return r.skip() })
		return n == 0, err
	}
	return false, r.unexpected("a value")
}
