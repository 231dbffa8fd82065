package llama

import (
	"unicode"
	"unicode/utf8"
)

// maxRun is the longest run of characters of one class that is given to a tokenizer which cuts text with a recursive regular
// expression engine: recursion is as deep as the run is long, and 20,000 letters in a row would overflow the C stack and end
// the process. Words are not that long in any language.
const maxRun = 512

// class groups characters as the pre-tokenizers' expressions do.
type class uint8

const (
	classOther class = iota
	classLetter
	classNumber
	classSpace
)

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		switch {
		case 'a' <= r|0x20 && r|0x20 <= 'z':
			return classLetter
		case '0' <= r && r <= '9':
			return classNumber
		case r == ' ' || '\t' <= r && r <= '\r':
			return classSpace
		}
		return classOther
	case unicode.IsLetter(r), unicode.IsMark(r):
		return classLetter
	case unicode.IsNumber(r):
		return classNumber
	case unicode.IsSpace(r):
		return classSpace
	}
	return classOther
}

// cutRuns cuts text wherever a run reaches maxRun characters, and only there, so ordinary text stays whole. The pieces in
// order are the text.
func cutRuns(text string) []string {
	var pieces []string
	start, run := 0, 0
	last := classOther
	for i, r := range text {
		c := classOf(r)
		if c != last {
			last, run = c, 0
		}
		if run == maxRun {
			pieces = append(pieces, text[start:i])
			start, run = i, 0
		}
		run++
	}
	return append(pieces, text[start:])
}
