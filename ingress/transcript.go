package ingress

import (
	"slices"

	"github.com/cadence-slo/cadence/schema"
)

// maxHeld bounds the chunks held over a gap; what does not fit is in TOKENS too.
const maxHeld = 1024

// transcript is what has been relayed of one answer: every token once, in order, whatever the attempts that they come
// from. It is a plain value without clock or I/O; its answer's mutex guards it.
type transcript struct {
	ids   schema.Tokens
	texts []said // what is certain and not taken yet, in order, none without both text and log-probabilities
	// attempt of the last chunk taken; floor is the last one sealed. Chunks of attempts ≤ floor or < attempt are late.
	attempt, floor uint32
	held           []*schema.Chunk // beyond a gap, by index
	// At most one of the two is set, and nothing is taken after it.
	finish *schema.Finish
	failed *schema.Error
}

// fate is what became of a chunk.
type fate uint8

const (
	taken fate = iota
	late       // a repetition, or of a sealed or older attempt
	ahead      // held until what is missing comes
	torn       // it overlaps what is there: no writer does that
)

func (t *transcript) ended() bool { return t.finish != nil || t.failed != nil }

// gap reports whether something is missing before what has come.
func (t *transcript) gap() bool { return len(t.held) > 0 }

// add takes a chunk, and those held that follow from it.
func (t *transcript) add(c *schema.Chunk) fate {
	f := t.one(c)
	switch f {
	case ahead:
		t.hold(c)
	case taken:
		for len(t.held) > 0 && !t.ended() && t.one(t.held[0]) != ahead {
			t.held = slices.Delete(t.held, 0, 1)
		}
		if t.ended() {
			t.held = nil
		}
	}
	return f
}

func (t *transcript) one(c *schema.Chunk) fate {
	next := int32(len(t.ids))
	// A scheduler that gives up on a request that no worker has names no attempt, and may not know how far it came.
	unnamed := c.Error != nil && c.Attempt == 0
	switch {
	case t.ended():
		return late
	case unnamed:
		t.failed = c.Error
		return taken
	case c.Attempt <= t.floor || c.Attempt < t.attempt:
		return late
	case c.Index > next:
		return ahead
	case c.Index < next && c.Error != nil && len(c.IDs) == 0:
		// The tokens it counts are here, and more.
	case c.Index < next && c.Index+int32(len(c.IDs)) <= next:
		return late
	case c.Index < next:
		return torn
	}
	t.attempt = c.Attempt
	t.ids = append(t.ids, c.IDs...)
	switch {
	case c.Logprobs != nil:
		t.texts = append(t.texts, said{c.Text, &tokens{ids: c.IDs, logprobs: c.Logprobs}})
	case c.Text != "":
		t.texts = append(t.texts, said{text: c.Text})
	}
	t.finish, t.failed = c.Finish, c.Error
	return taken
}

func (t *transcript) hold(c *schema.Chunk) {
	if len(t.held) >= maxHeld {
		return
	}
	i, found := slices.BinarySearchFunc(t.held, c, func(h, c *schema.Chunk) int {
		if h.Index != c.Index {
			return int(h.Index) - int(c.Index)
		}
		return int(h.Attempt) - int(c.Attempt)
	})
	if !found {
		t.held = slices.Insert(t.held, i, c)
	}
}

// seal drops every later chunk of attempts up to the given one.
func (t *transcript) seal(attempt uint32) {
	t.floor = max(t.floor, attempt)
	t.held = slices.DeleteFunc(t.held, func(c *schema.Chunk) bool { return c.Attempt <= t.floor })
}
