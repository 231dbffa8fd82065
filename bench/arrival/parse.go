package arrival

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrProcess is returned for a text that is no process; the message names the key and the allowed values.
var ErrProcess = errors.New("arrival: invalid process")

// Texts are examples of every process.
var Texts = []string{"poisson", "gamma:cv=2", "onoff:on=10s,off=20s,low=0.2", "ramp:from=0.5,to=2", "constant"}

// Parse reads a process: its name and, behind a colon, its values as key=value with commas between them. Every value must be
// said.
func Parse(text string) (Process, error) {
	name, rest, _ := strings.Cut(text, ":")
	v := values{text: text, left: map[string]string{}}
	for pair := range strings.SplitSeq(rest, ",") {
		if pair == "" && rest == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if _, twice := v.left[key]; !ok || twice {
			return nil, fmt.Errorf("%w: %q: %q is not one key=value", ErrProcess, text, pair)
		}
		v.left[key] = value
	}
	var p Process
	switch name {
	case "poisson":
		p = Poisson{}
	case "gamma":
		p = Gamma{CV: v.number("cv", 0.05, 20)}
	case "onoff":
		p = OnOff{On: v.duration("on"), Off: v.duration("off"), Low: v.number("low", 0, 1)}
	case "ramp":
		r := Ramp{From: v.number("from", 0, 1000), To: v.number("to", 0, 1000)}
		if v.err == nil && r.From+r.To == 0 {
			v.fail("from and to are both 0")
		}
		p = r
	case "constant":
		p = Constant{}
	default:
		return nil, fmt.Errorf("%w: %q, allowed: %s", ErrProcess, text, strings.Join(Texts, ", "))
	}
	for key := range v.left {
		v.fail("%s has no %q", name, key)
	}
	if v.err != nil {
		return nil, v.err
	}
	return p, nil
}

// values are what stands behind the colon. The first thing wrong with them is kept.
type values struct {
	text string
	left map[string]string // not asked for yet
	err  error
}

func (v *values) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf("%w: %q: %s", ErrProcess, v.text, fmt.Sprintf(format, args...))
	}
}

func (v *values) take(key string) (string, bool) {
	s, ok := v.left[key]
	delete(v.left, key)
	if !ok {
		v.fail("%s is missing", key)
	}
	return s, ok
}

func (v *values) number(key string, least, most float64) float64 {
	s, ok := v.take(key)
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= least && n <= most) {
		v.fail("%s is %q, allowed: %v to %v", key, s, least, most)
	}
	return n
}

func (v *values) duration(key string) time.Duration {
	s, ok := v.take(key)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Millisecond || d > 1000*time.Hour {
		v.fail("%s is %q, allowed: 1ms to 1000h", key, s)
	}
	return d
}
