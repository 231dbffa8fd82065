package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxEvent bounds an event of a stream, in bytes: one token's, with room for what else servers put in.
const maxEvent = 1 << 20

// event is a server-sent event. Its fields are valid until the next one is read.
type event struct {
	name string // "" is a message
	data []byte
}

// eventReader reads server-sent events (the part of the standard that such servers use: event and data; comments and
// other fields are skipped).
type eventReader struct {
	in   *bufio.Reader
	data []byte
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{in: bufio.NewReaderSize(r, 16<<10)}
}

// next returns the next event, or io.EOF after the last. What stands after the last empty line is no event: it was cut.
func (r *eventReader) next() (event, error) {
	var e event
	r.data = r.data[:0]
	fields := false
	for {
		line, err := r.line()
		if err != nil {
			return e, err
		}
		if len(line) == 0 {
			if !fields {
				continue
			}
			e.data = r.data
			return e, nil
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			e.name, fields = string(value), true
		case "data", "error": // some servers put an error into a field of that name
			if len(r.data) > 0 {
				r.data = append(r.data, '\n')
			}
			r.data, fields = append(r.data, value...), true
			if string(name) == "error" {
				e.name = "error"
			}
		}
		if len(r.data) > maxEvent {
			return e, fmt.Errorf("%w: an event of more than %d bytes", ErrProtocol, maxEvent)
		}
	}
}

// line returns a line without its end, valid until the next call.
func (r *eventReader) line() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(long) > maxEvent {
				return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, maxEvent)
			}
			line, err = r.in.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'}), nil
}
