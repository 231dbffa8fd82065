package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// wire writes a body exactly as encoding/json does, or reads what was written so. These bodies cross the wire thousands
// of times a second, and encoding/json takes several times as long for them. It is a short cut, not a second dialect:
// reading stops at anything that Encode does not write (white space, another order, an unknown field), and Decode then
// asks encoding/json; tests hold the two equal in both directions.
type wire struct {
	b       []byte // written so far, or still to be read
	reading bool
	first   bool  // the next field is the first of its object
	err     error // writing: a value has no encoding; reading: errShape
}

// errShape says that the input is not what Encode writes. It never leaves the package.
var errShape = errors.New("schema: not as Encode writes it")

// open begins an object of about n bytes, which close ends.
func (w *wire) open(n int) {
	if !w.reading {
		w.b = slices.Grow(w.b, n)
	}
	w.lit('{')
	w.first = true
}

func (w *wire) close() {
	w.lit('}')
	w.first = false
}

// key writes a field's name, or reads it if it comes next, and reports whether the value is to follow. A name comes with
// what stands around it, the comma after the field before included: ,"time_ns":
func (w *wire) key(name string) bool {
	if w.first {
		name = name[1:]
	}
	switch {
	case !w.reading:
		w.b = append(w.b, name...)
	case len(w.b) >= len(name) && string(w.b[:len(name)]) == name:
		w.b = w.b[len(name):]
	default:
		return false
	}
	w.first = false
	return true
}

// lit writes or reads one character that must be there.
func (w *wire) lit(c byte) {
	switch {
	case !w.reading:
		w.b = append(w.b, c)
	case len(w.b) > 0 && w.b[0] == c:
		w.b = w.b[1:]
	default:
		w.fail(errShape)
	}
}

func (w *wire) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// must fails if a field that is always written is not there.
func (w *wire) must(ok bool) {
	if !ok {
		w.fail(errShape)
	}
}

type integer interface {
	~int | ~int32 | ~int64 | ~uint32 | ~uint64
}

// num is an integer that is always written, optNum one that is not when 0.
func num[T integer](w *wire, name string, p *T) { w.must(number(w, name, p)) }
func optNum[T integer](w *wire, name string, p *T) {
	if w.reading || *p != 0 {
		number(w, name, p)
	}
}

func number[T integer](w *wire, name string, p *T) bool {
	if !w.key(name) {
		return false
	}
	if !w.reading {
		if *p < 0 {
			w.b = strconv.AppendInt(w.b, int64(*p), 10)
		} else {
			w.b = strconv.AppendUint(w.b, uint64(*p), 10)
		}
		return true
	}
	b := w.b
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	n, v := 0, uint64(0)
	for ; n < len(b) && b[n]-'0' <= 9; n++ {
		v = v*10 + uint64(b[n]-'0')
	}
	bad := n == 0 || (b[0] == '0' && (n > 1 || neg))
	if n > 19 { // v may have overflowed
		var err error
		v, err = strconv.ParseUint(string(b[:n]), 10, 64)
		bad = bad || err != nil
	}
	if neg {
		*p = T(-v)
		bad = bad || *p >= 0 || uint64(-int64(*p)) != v
	} else {
		*p = T(v)
		bad = bad || *p < 0 || uint64(*p) != v
	}
	if bad { // or a fraction, which the next key stumbles over
		w.fail(errShape)
	}
	w.b = b[n:]
	return true
}

// optBool is a bool that is not written when false.
func optBool(w *wire, name string, p *bool) {
	if !w.reading && !*p || !w.key(name) {
		return
	}
	if !w.reading {
		w.b = append(w.b, "true"...)
		return
	}
	rest, ok := bytes.CutPrefix(w.b, []byte("true"))
	if !ok {
		w.fail(errShape)
		return
	}
	*p, w.b = true, rest
}

// str is a string that is always written, optStr one that is not when empty.
func str[T ~string](w *wire, name string, p *T) { w.must(text(w, name, p)) }
func optStr[T ~string](w *wire, name string, p *T) {
	if w.reading || *p != "" {
		text(w, name, p)
	}
}

func text[T ~string](w *wire, name string, p *T) bool {
	if !w.key(name) {
		return false
	}
	if w.reading {
		*p = T(w.unquote())
	} else {
		w.b = appendString(w.b, string(*p))
	}
	return true
}

// optStrs is a list of strings that is not written when empty.
func optStrs(w *wire, name string, p *[]string) {
	if !w.reading && len(*p) == 0 || !w.key(name) {
		return
	}
	w.lit('[')
	if w.reading {
		for *p = append(*p, w.unquote()); w.err == nil && len(w.b) > 0 && w.b[0] == ','; {
			w.b = w.b[1:]
			*p = append(*p, w.unquote())
		}
	} else {
		for i, s := range *p {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = appendString(w.b, s)
		}
	}
	w.lit(']')
}

// unquote reads a string.
func (w *wire) unquote() string {
	raw, plain := w.quoted()
	if w.err != nil {
		return ""
	}
	if plain {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		w.fail(errShape)
	}
	return s
}

// quoted reads a string literal with its quotes. It is plain if it stands for the bytes between them.
func (w *wire) quoted() (raw []byte, plain bool) {
	b := w.b
	plain = true
	ascii := true
	if len(b) == 0 || b[0] != '"' {
		w.fail(errShape)
		return nil, false
	}
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			w.b = b[i+1:]
			return b[:i+1], plain && (ascii || utf8.Valid(b[1:i]))
		case c == '\\':
			plain = false
			i++
		case c < ' ':
			plain = false // encoding/json refuses it
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	w.fail(errShape)
	return nil, false
}

// appendString appends s as encoding/json writes it, which escapes some characters for the sake of HTML and JavaScript.
func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if plainChar[s[i]] {
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r < utf8.RuneSelf || r == utf8.RuneError || r == '\u2028' || r == '\u2029' {
			q, _ := json.Marshal(s) // a string always has an encoding
			return append(b, q...)
		}
		i += n - 1
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// plainChar holds the ASCII characters that stand for themselves in a string.
var plainChar = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return plain
}()

// toks is a token sequence that is always written, optToks one that is not when empty.
func toks(w *wire, name string, p *Tokens) { w.must(tokens(w, name, p)) }
func optToks(w *wire, name string, p *Tokens) {
	if w.reading || len(*p) != 0 {
		tokens(w, name, p)
	}
}

func tokens(w *wire, name string, p *Tokens) bool {
	if !w.key(name) {
		return false
	}
	w.lit('"')
	if !w.reading {
		var err error
		if w.b, err = p.AppendText(w.b); err != nil {
			w.fail(err)
		}
	} else if n := bytes.IndexByte(w.b, '"'); n < 0 || p.UnmarshalText(w.b[:n]) != nil {
		w.fail(errShape)
	} else {
		w.b = w.b[n:]
	}
	w.lit('"')
	return true
}

// optFloat is a number that is not written when 0.
func optFloat(w *wire, name string, p *float32) {
	if !w.reading && *p == 0 || !w.key(name) {
		return
	}
	w.float(p)
}

// optFloats is a list of numbers that is not written when empty.
func optFloats(w *wire, name string, p *[]float32) {
	if !w.reading && len(*p) == 0 || !w.key(name) {
		return
	}
	w.lit('[')
	for i := 0; w.err == nil; i++ {
		if w.reading {
			*p = append(*p, 0)
		}
		w.float(&(*p)[i])
		if w.reading && (len(w.b) == 0 || w.b[0] != ',') || !w.reading && i+1 == len(*p) {
			break
		}
		w.lit(',')
	}
	w.lit(']')
}

// float writes or reads a number.
func (w *wire) float(p *float32) {
	if !w.reading {
		w.b = appendFloat(w, w.b, *p)
		return
	}
	n := bytes.IndexAny(w.b, ",]}")
	if n < 0 || json.Unmarshal(w.b[:n], p) != nil {
		w.fail(errShape)
		return
	}
	w.b = w.b[n:]
}

// appendFloat appends f as encoding/json writes it: as JavaScript does.
func appendFloat(w *wire, b []byte, f float32) []byte {
	abs := f
	if f < 0 {
		abs = -f
	}
	switch {
	case f-f != 0: // not finite
		q, err := json.Marshal(f)
		w.fail(err)
		return append(b, q...)
	case abs == 0 || abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(b, float64(f), 'f', -1, 32)
	}
	b = strconv.AppendFloat(b, float64(f), 'e', -1, 32)
	if n := len(b); b[n-4] == 'e' && b[n-3] == '-' && b[n-2] == '0' { // e-09 is e-9
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b
}
