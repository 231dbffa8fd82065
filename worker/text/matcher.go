package text

// matcher finds the first stop string to be complete, a byte at a time, and holds back what may begin one (Knuth,
// Morris and Pratt, one automaton for each string).
type matcher struct {
	stops []string
	// fail[i][k] is the longest proper prefix of stops[i] that ends stops[i][:k+1].
	fail  [][]int32
	state []int32 // state[i] bytes of stops[i] match the end of the text
	held  []byte  // text not released; the last max(state) bytes of it may begin a stop string
}

func (m *matcher) reset(stops []string) {
	m.stops, m.held, m.state = stops, m.held[:0], m.state[:0]
	for len(m.fail) < len(stops) {
		m.fail = append(m.fail, nil)
	}
	for i, stop := range stops {
		m.state = append(m.state, 0)
		f := m.fail[i][:0]
		f = append(f, 0)
		for k, j := 1, int32(0); k < len(stop); k++ {
			for j > 0 && stop[k] != stop[j] {
				j = f[j-1]
			}
			if stop[k] == stop[j] {
				j++
			}
			f = append(f, j)
		}
		m.fail[i] = f
	}
}

// push takes the next byte of the text. If it completes a stop string, the text before the longest such string is
// appended to dst and done is true.
func (m *matcher) push(dst []byte, c byte) (text []byte, done bool) {
	m.held = append(m.held, c)
	longest := 0
	for i, stop := range m.stops {
		j := m.state[i]
		for j > 0 && stop[j] != c {
			j = m.fail[i][j-1]
		}
		if stop[j] == c {
			j++
		}
		m.state[i] = j
		if int(j) == len(stop) {
			longest = max(longest, len(stop))
		}
	}
	if longest == 0 {
		return dst, false
	}
	return append(dst, m.held[:len(m.held)-longest]...), true
}

// release appends to dst the held text that begins no stop string.
func (m *matcher) release(dst []byte) []byte {
	keep := int32(0)
	for _, j := range m.state {
		keep = max(keep, j)
	}
	n := len(m.held) - int(keep)
	dst = append(dst, m.held[:n]...)
	m.held = m.held[:copy(m.held, m.held[n:])]
	return dst
}

func (m *matcher) flush(dst []byte) []byte {
	dst = append(dst, m.held...)
	m.held = m.held[:0]
	return dst
}
