package load

import "bytes"

// event is one server-sent event. Its fields are valid during the call that hands it out.
type event struct {
	id, name, data []byte
}

// sseParser splits a byte stream into events by the rules of the HTML standard: lines end with LF, CR or CRLF, data
// lines are joined by LF, an event without data is none, and what is not closed by a blank line at the end is dropped.
// The zero value is ready; reset makes it so again and keeps its buffers.
type sseParser struct {
	line    []byte // of a line that is not complete yet
	data    []byte
	id      []byte // stays for the events that follow
	name    []byte
	hasData bool
	skipLF  bool // the last byte was CR
	begun   bool // past a byte order mark
}

var bom = []byte("\xef\xbb\xbf")

func (p *sseParser) reset() {
	*p = sseParser{line: p.line[:0], data: p.data[:0], id: p.id[:0], name: p.name[:0]}
}

// feed hands every event that b completes to emit, until that returns false; then feed does too, and the rest of b is
// lost.
func (p *sseParser) feed(b []byte, emit func(event) bool) bool {
	for len(b) > 0 {
		if p.skipLF {
			p.skipLF = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			end = len(b)
		}
		if cr := bytes.IndexByte(b[:end], '\r'); cr >= 0 {
			end = cr
		}
		if end == len(b) {
			p.line = append(p.line, b...)
			return true
		}
		line := b[:end]
		if len(p.line) > 0 {
			p.line = append(p.line, line...)
			line = p.line
		}
		p.skipLF = b[end] == '\r'
		b = b[end+1:]
		ok := p.take(line, emit)
		p.line = p.line[:0]
		if !ok {
			return false
		}
	}
	return true
}

// take handles one line without its end.
func (p *sseParser) take(line []byte, emit func(event) bool) bool {
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, bom)
	}
	if len(line) == 0 {
		ok := true
		if p.hasData {
			ok = emit(event{id: p.id, name: p.name, data: p.data})
		}
		p.data, p.name, p.hasData = p.data[:0], p.name[:0], false
		return ok
	}
	field, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(field) { // an empty one is a comment
	case "data":
		if p.hasData {
			p.data = append(p.data, '\n')
		}
		p.data, p.hasData = append(p.data, value...), true
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			p.id = append(p.id[:0], value...)
		}
	case "event":
		p.name = append(p.name[:0], value...)
	}
	return true
}
