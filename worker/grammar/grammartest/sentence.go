package grammartest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Grammar is a parsed grammar.
type Grammar struct{ rules map[string]alternatives }

type (
	alternatives [][]item
	// item is a set of characters, a rule's name or a group, repeated lo to hi times (-1: any number of times).
	item struct {
		set    []span
		not    bool
		name   string
		group  alternatives
		lo, hi int
	}
	span struct{ from, to rune }
)

// Parse reads the part of GBNF that package grammar writes.
func Parse(gbnf string) (g *Grammar, err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("grammartest: %v in %s", e, gbnf)
		}
	}()
	g = &Grammar{rules: map[string]alternatives{}}
	for line := range strings.Lines(gbnf) {
		name, body, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ::= ")
		if !ok || g.rules[name] != nil {
			return nil, fmt.Errorf("grammartest: line %q", line)
		}
		p := &parser{s: body}
		g.rules[name] = p.alternatives()
		if p.s != "" {
			return nil, fmt.Errorf("grammartest: %q is left of rule %s", p.s, name)
		}
	}
	return g, g.known()
}

// known checks that all names have rules.
func (g *Grammar) known() error {
	var missing string
	var visit func(alternatives)
	visit = func(all alternatives) {
		for _, seq := range all {
			for _, it := range seq {
				if it.name != "" && g.rules[it.name] == nil {
					missing = it.name
				}
				visit(it.group)
			}
		}
	}
	for _, all := range g.rules {
		visit(all)
	}
	if missing != "" || g.rules["root"] == nil {
		return fmt.Errorf("grammartest: no rule %q", missing)
	}
	return nil
}

type parser struct{ s string }

func (p *parser) space() { p.s = strings.TrimLeft(p.s, " ") }

func (p *parser) eat(token string) bool {
	rest, ok := strings.CutPrefix(p.s, token)
	if ok {
		p.s = rest
	}
	return ok
}

func (p *parser) alternatives() (all alternatives) {
	for {
		all = append(all, p.sequence())
		if !p.eat("|") {
			return all
		}
	}
}

func (p *parser) sequence() (seq []item) {
	for {
		p.space()
		var it item
		switch {
		case p.s == "" || p.s[0] == '|' || p.s[0] == ')':
			return seq
		case p.eat(`"`):
			var literal []item
			for !p.eat(`"`) {
				c := p.char()
				literal = append(literal, item{set: []span{{c, c}}, lo: 1, hi: 1})
			}
			it.group = alternatives{literal}
		case p.eat("["):
			it.not = p.eat("^")
			for !p.eat("]") {
				s := span{from: p.char()}
				s.to = s.from
				if len(p.s) > 1 && p.s[0] == '-' && p.s[1] != ']' {
					p.s = p.s[1:]
					s.to = p.char()
				}
				it.set = append(it.set, s)
			}
		case p.eat("("):
			it.group = p.alternatives()
			if !p.eat(")") {
				panic("no )")
			}
		default:
			n := strings.IndexFunc(p.s, func(r rune) bool {
				return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
			})
			if n < 0 {
				n = len(p.s)
			}
			it.name, p.s = p.s[:n], p.s[n:]
			if n == 0 {
				panic("nothing at " + p.s)
			}
		}
		it.lo, it.hi = p.times()
		seq = append(seq, it)
	}
}

func (p *parser) times() (lo, hi int) {
	switch {
	case p.eat("?"):
		return 0, 1
	case p.eat("*"):
		return 0, -1
	case p.eat("+"):
		return 1, -1
	case !p.eat("{"):
		return 1, 1
	}
	bounds, rest, _ := strings.Cut(p.s, "}")
	p.s = rest
	least, most, ranged := strings.Cut(bounds, ",")
	lo, err := strconv.Atoi(least)
	if err != nil {
		panic(err)
	}
	switch {
	case !ranged:
		return lo, lo
	case most == "":
		return lo, -1
	}
	if hi, err = strconv.Atoi(most); err != nil || hi < lo {
		panic("bounds " + bounds)
	}
	return lo, hi
}

func (p *parser) char() rune {
	if p.eat(`\`) {
		c := p.s[0]
		p.s = p.s[1:]
		switch c {
		case 'n':
			return '\n'
		case 'r':
			return '\r'
		case 't':
			return '\t'
		case '\\', '"', '[', ']':
			return rune(c)
		case 'x':
			v, err := strconv.ParseUint(p.s[:2], 16, 8)
			if err != nil {
				panic(err)
			}
			p.s = p.s[2:]
			return rune(v)
		}
		panic("escape " + string(c))
	}
	r, n := utf8.DecodeRuneInString(p.s)
	p.s = p.s[n:]
	return r
}

// Sentence returns a random sentence; deeper than depth it takes the shortest way that it can see.
func (g *Grammar) Sentence(rng *rand.Rand, depth int) string {
	var b strings.Builder
	g.derive(&b, rng, g.rules["root"], depth)
	return b.String()
}

// most is how often the derivation repeats what has no bound, or a distant one, beyond the least.
const most = 4

func (g *Grammar) derive(b *strings.Builder, rng *rand.Rand, all alternatives, depth int) {
	seq := all[rng.IntN(len(all))]
	if depth < 0 { // the alternatives with rules of their own come first in none of our grammars' primitives: take a plain one
		for _, s := range all {
			if g.plain(s) {
				seq = s
				break
			}
		}
	}
	for _, it := range seq {
		n := it.lo
		if hi := it.hi; depth >= 0 && hi != it.lo {
			if hi < 0 || hi > it.lo+most {
				hi = it.lo + most
			}
			n += rng.IntN(hi - it.lo + 1)
		}
		for range n {
			switch {
			case it.name != "":
				g.derive(b, rng, g.rules[it.name], depth-1)
			case it.group != nil:
				g.derive(b, rng, it.group, depth)
			default:
				b.WriteRune(it.pick(rng))
			}
		}
	}
}

// plain reports whether a sequence needs no other rule.
func (g *Grammar) plain(seq []item) bool {
	for _, it := range seq {
		if it.lo > 0 && it.name != "" {
			return false
		}
		for _, s := range it.group {
			if it.lo > 0 && !g.plain(s) {
				return false
			}
		}
	}
	return true
}

func (it *item) pick(rng *rand.Rand) rune {
	if !it.not {
		s := it.set[rng.IntN(len(it.set))]
		return s.from + rng.Int32N(s.to-s.from+1)
	}
	some := []rune(" aZ0é日😀/{}[]:,'\u2028")
	for {
		if r := some[rng.IntN(len(some))]; it.has(r) {
			return r
		}
	}
}

func (it *item) has(r rune) bool {
	for _, s := range it.set {
		if s.from <= r && r <= s.to {
			return !it.not
		}
	}
	return it.not
}

// Matches reports whether a text is a sentence.
func (g *Grammar) Matches(text string) bool {
	found := false
	g.match([]rune(text), 0, g.rules["root"], func(end int) bool {
		found = found || end == len([]rune(text))
		return found
	})
	return found
}

// match calls then with every end of a match that begins at pos, until it returns true.
func (g *Grammar) match(text []rune, pos int, all alternatives, then func(int) bool) bool {
	for _, seq := range all {
		if g.matchSeq(text, pos, seq, 0, then) {
			return true
		}
	}
	return false
}

func (g *Grammar) matchSeq(text []rune, pos int, seq []item, times int, then func(int) bool) bool {
	if len(seq) == 0 {
		return then(pos)
	}
	it := seq[0]
	if times >= it.lo && g.matchSeq(text, pos, seq[1:], 0, then) {
		return true
	}
	if it.hi >= 0 && times >= it.hi {
		return false
	}
	again := func(end int) bool {
		if end == pos && times >= it.lo {
			return false
		}
		return g.matchSeq(text, end, seq, times+1, then)
	}
	switch {
	case it.name != "":
		return g.match(text, pos, g.rules[it.name], again)
	case it.group != nil:
		return g.match(text, pos, it.group, again)
	}
	return pos < len(text) && it.has(text[pos]) && again(pos+1)
}
