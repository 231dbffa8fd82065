package text

const replacement = "\uFFFD"

// Stream is one answer's way from pieces to text. The zero value is a stream without stop strings.
type Stream struct {
	// tail[:n] is the beginning of a character that is not complete: a lead byte and continuation bytes that fit it.
	tail [4]byte
	n    int
	stop matcher
	done bool
}

// Reset makes s a fresh stream that ends at any of the given strings, each not empty. It keeps stops and its buffers.
func (s *Stream) Reset(stops []string) {
	s.n, s.done = 0, false
	s.stop.reset(stops)
}

// Append feeds the bytes of the next piece and appends to dst the text that has become certain. It reports whether a
// stop string is complete: the text has ended, and nothing comes out any more.
func (s *Stream) Append(dst, piece []byte) (text []byte, stopped bool) {
	if s.done {
		return dst, true
	}
	for i := 0; i < len(piece); {
		c := piece[i]
		if s.n == 0 {
			if c < 0x80 {
				dst = s.ascii(dst, c)
				i++
			} else {
				lo, _ := follow(c)
				if lo == 0 { // no character begins so
					dst = s.emit(dst, replacement)
				} else {
					s.tail[0], s.n = c, 1
				}
				i++
			}
		} else if lo, hi := s.next(); c < lo || c > hi {
			s.n = 0 // what came is a maximal subpart; c begins anew
			dst = s.emit(dst, replacement)
		} else {
			s.tail[s.n] = c
			s.n++
			i++
			if s.n == size(s.tail[0]) {
				dst = s.character(dst)
			}
		}
		if s.done {
			return dst, true
		}
	}
	return s.stop.release(dst), false
}

// Flush appends to dst what was held back, with U+FFFD for an incomplete character, and ends the stream.
func (s *Stream) Flush(dst []byte) []byte {
	if s.done {
		return dst
	}
	if s.n > 0 {
		s.n = 0
		dst = s.emit(dst, replacement)
	}
	if !s.done {
		dst = s.stop.flush(dst)
		s.done = true
	}
	return dst
}

func (s *Stream) ascii(dst []byte, c byte) []byte {
	if len(s.stop.stops) == 0 {
		return append(dst, c)
	}
	s.tail[0], s.n = c, 1
	return s.character(dst)
}

// character passes on the complete character in tail.
func (s *Stream) character(dst []byte) []byte {
	n := s.n
	s.n = 0
	if len(s.stop.stops) == 0 {
		return append(dst, s.tail[:n]...)
	}
	for _, c := range s.tail[:n] {
		if dst, s.done = s.stop.push(dst, c); s.done {
			break
		}
	}
	return dst
}

func (s *Stream) emit(dst []byte, char string) []byte {
	s.n = copy(s.tail[:], char)
	return s.character(dst)
}

// next returns the range of the byte that may follow tail[:n].
func (s *Stream) next() (lo, hi byte) {
	if s.n == 1 {
		return follow(s.tail[0])
	}
	return 0x80, 0xBF
}

// follow returns the range of the second byte after a lead byte (Unicode table 3-7), or zeroes if c leads nothing.
func follow(c byte) (lo, hi byte) {
	switch {
	case c < 0xC2 || c > 0xF4:
		return 0, 0
	case c == 0xE0:
		return 0xA0, 0xBF
	case c == 0xED:
		return 0x80, 0x9F
	case c == 0xF0:
		return 0x90, 0xBF
	case c == 0xF4:
		return 0x80, 0x8F
	}
	return 0x80, 0xBF
}

// size returns the length of the character that a lead byte begins.
func size(c byte) int {
	switch {
	case c < 0xE0:
		return 2
	case c < 0xF0:
		return 3
	}
	return 4
}
