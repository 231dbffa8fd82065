package services

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/cadence-slo/cadence/schema"
	"github.com/mattn/go-runewidth"
)

// What an account is printed in: one screen.
const (
	screenLines   = 40
	screenColumns = 100
	labelColumns  = 10
	barColumns    = 24
)

// page collects lines.
type page struct {
	lines []string
}

// line adds a line under a label.
func (p *page) line(label, format string, args ...any) {
	p.lines = append(p.lines, clip(fmt.Sprintf("%-*s%s", labelColumns, label, fmt.Sprintf(format, args...)), screenColumns))
}

// text is the account for people.
func (a *account) text() string {
	var head, tail page
	a.writeRequest(&head)
	a.writeDecision(&head)
	a.writeFeatures(&head)
	a.writeEnd(&tail)
	var events page
	a.writeEvents(&events, screenLines-len(head.lines)-len(tail.lines))
	return strings.Join(append(append(head.lines, events.lines...), tail.lines...), "\n") + "\n"
}

func (a *account) writeRequest(p *page) {
	p.line("request", "%s%s", a.Request, prefixed(", of the client ", a.ClientRequest))
	where := prefixed(" at ", string(a.Ingress)) + prefixed(", pool ", a.Pool) + prefixed(", model ", a.Model)
	p.line("", "arrived %s UTC%s", a.Arrived.Format("2006-01-02 15:04:05.000"), where)
	class := string(a.Asked)
	if a.Served != "" && a.Asked != "" && a.Served != a.Asked {
		class = fmt.Sprintf("%s asked, served as %s", a.Asked, a.Served)
	}
	stream := "not streamed"
	if a.Stream {
		stream = "streamed"
	}
	p.line("", "tenant %s%s%s, %s", a.Tenant, prefixed(", ", string(a.Kind)), prefixed(", ", cmp.Or(class, string(a.Served))), stream)
	expected := ""
	if d := a.Decision; d != nil {
		for _, f := range d.Features {
			if f.Name == "cached_tokens" {
				expected = fmt.Sprintf(" (%s expected in the cache)", number(f.Value))
			}
		}
	}
	p.line("", "prompt %d tokens%s, answer %d at most", a.PromptTokens, expected, a.MaxTokens)
	var objectives []string
	if a.TTFT > 0 {
		objectives = append(objectives, "first token in "+round(a.TTFT))
	}
	if a.E2E > 0 {
		objectives = append(objectives, "last byte in "+round(a.E2E))
	}
	if len(objectives) == 0 {
		objectives = []string{"none"}
	}
	p.line("asked", "%s", strings.Join(objectives, ", "))
}

func (a *account) writeDecision(p *page) {
	d := a.Decision
	if d == nil {
		p.line("decision", "there is none among its events")
		return
	}
	what := "admitted" + prefixed(" by ", d.Rule)
	if !d.Admitted {
		what = "refused: " + string(d.Refusal)
		if d.Rule != string(d.Refusal) {
			what += prefixed(", by ", d.Rule)
		}
	}
	p.line("decision", "%s%s", what, prefixed("; ", strings.TrimSpace(d.Note)))
	p.line("", "%s", d.Why)
	if d.RetryAfter > 0 {
		p.line("", "told to come back after %s", round(d.RetryAfter))
	}
	if d.Predicted == 0 {
		p.line("", "nothing was predicted%s", prefixed(", propensity ", nonZero(d.Propensity)))
		return
	}
	bound := "no bound was known"
	if d.Bound > 0 {
		bound = fmt.Sprintf("below %s at %s %%", took(d.Bound), number(d.Level*100))
	}
	p.line("predicted", "first token %s, last byte %s; %s", took(d.First), took(d.Predicted), bound)
	price := float64(d.Lambda) * d.Cost.Seconds()
	p.line("", "chance to be in time %s, gain for all %s; admitted with probability %s", number(d.Meet), number(d.Gain), number(d.Propensity))
	p.line("", "price %s: %s of a full engine's time, at λ = %s a second", number(float32(price)), took(d.Cost), number(d.Lambda))
	model := "the physics alone"
	if d.Artifact != "" {
		model = "model " + d.Artifact[:min(12, len(d.Artifact))]
	}
	p.line("", "by %s%s", model, prefixed("; simulated at the median length: ", nonZeroTime(d.Physics)))
}

// writeFeatures writes two columns.
func (a *account) writeFeatures(p *page) {
	if a.Decision == nil || len(a.Decision.Features) == 0 {
		return
	}
	all := a.Decision.Features
	const most = 18
	shown := all[:min(len(all), most)]
	cell := func(f namedFeature) string {
		unit := f.Unit
		if unit == "1" { // no dimension
			unit = ""
		}
		return fmt.Sprintf("%-22s%9s %-11s", f.Name, number(f.Value), unit)
	}
	rows := (len(shown) + 1) / 2
	for i := range rows {
		label, right := "", ""
		if i == 0 {
			label = "features"
		}
		if j := i + rows; j < len(shown) {
			right = "  " + cell(shown[j])
		}
		p.line(label, "%s%s", cell(shown[i]), right)
	}
	if n := len(all) - len(shown); n > 0 {
		p.line("", "and %d more: they are another version's (--json has all)", n)
	}
}

// writeEvents writes a line each event, so many lines at most: in the middle some may be missing.
func (a *account) writeEvents(p *page, most int) {
	total := time.Duration(1)
	for _, m := range a.Events {
		total = max(total, m.Since)
	}
	most = max(most, 3)
	from, to := len(a.Events), len(a.Events) // those between are left out
	if len(a.Events) > most {
		from = most - (most-1)/2 - 1
		to = len(a.Events) - (most - 1 - from)
	}
	before := time.Duration(0)
	for i, m := range a.Events {
		label := ""
		if i == 0 {
			label = "events"
		}
		switch {
		case i == from:
			p.line(label, "%9s  … %d more (--json has all)", "", to-from)
		case i > from && i < to:
		default:
			name := string(m.Type)
			if m.Attempt > 1 {
				name += " #" + strconv.FormatUint(uint64(m.Attempt), 10)
			}
			p.line(label, "%9s  %-19s%s %s", took(m.Since), name, timeBar(before, m.Since, total), cmp.Or(m.Detail, m.Source))
		}
		before = m.Since
	}
}

// timeBar is where from to to lies in total, at least a mark.
func timeBar(from, to, total time.Duration) string {
	at := func(d time.Duration) int {
		return int(math.Round(float64(barColumns) * min(max(float64(d)/float64(total), 0), 1)))
	}
	a, b := at(min(from, to)), at(max(from, to))
	if a == b { // a moment
		a = min(a, barColumns-1)
		return strings.Repeat(" ", a) + "▏" + strings.Repeat(" ", barColumns-a-1)
	}
	return strings.Repeat(" ", a) + strings.Repeat("█", b-a) + strings.Repeat(" ", barColumns-b)
}

func (a *account) writeEnd(p *page) {
	e := &a.End
	what := strings.ReplaceAll(e.Outcome, "_", " ")
	client := "the client has no end of its answer yet"
	switch schema.Outcome(e.Delivered) {
	case schema.OutcomeComplete:
		client = "the client has all"
	case schema.OutcomeDisconnected:
		client = "the client left before the end"
	case schema.OutcomeError:
		client = "the client got an error"
	case "":
		if e.Outcome == string(schema.Refused) {
			client = "nothing was generated"
		}
	default:
		client = "delivered: " + e.Delivered
	}
	p.line("end", "%s%s; %s", what, prefixed(" (", suffixed(e.Reason, ")")), client)
	if e.Attempts > 0 {
		p.line("", "%s, the last at %s; %s; answer %d tokens, prompt %d cached",
			counted(int(e.Attempts), "attempt"), cmp.Or(e.Worker, "no worker"), counted(e.Preemptions, "preemption"), e.OutputTokens, e.CachedTokens)
	}
	switch d := a.Decision; {
	case d == nil || d.Predicted == 0:
		p.line("verdict", "nothing was predicted")
	case !d.Admitted:
		p.line("verdict", "nothing was promised")
	default:
		ratio := ""
		if e.Delivered == string(schema.OutcomeComplete) {
			ratio = fmt.Sprintf("last byte after %s, %s times what was predicted; ", took(e.E2E), number(float32(float64(e.E2E)/float64(d.Predicted))))
		}
		p.line("verdict", "%sbound %s", ratio, against(strings.Replace(e.Bound, verdictMet, "held", 1), e.E2E, d.Bound))
	}
	p.line("", "objectives: first token %s; last byte %s", against(e.TTFTVerdict, e.TTFT, a.TTFT), against(e.E2EVerdict, e.E2E, a.E2E))
}

// against is a verdict with by how much, where that is known.
func against(verdict string, spent, limit time.Duration) string {
	switch {
	case verdict == verdictMissed && spent > limit:
		return fmt.Sprintf("missed by %s", took(spent-limit))
	case verdict == verdictMissed, verdict == verdictUnknown, verdict == verdictNone:
		return verdict
	default:
		return fmt.Sprintf("%s, with %s left", verdict, took(limit-spent))
	}
}

// round is a duration that somebody chose.
func round(d time.Duration) string {
	switch {
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	case d%time.Millisecond == 0 && d < 10*time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	default:
		return took(d)
	}
}

// took is a duration with three or four digits that count.
func took(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	case abs < time.Second:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case abs < 100*time.Second:
		return fmt.Sprintf("%.3f s", d.Seconds())
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

// number is x with four digits that count; whole ones below ten million in full.
func number(x float32) string {
	if v := float64(x); v == math.Trunc(v) && math.Abs(v) < 1e7 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(float64(x), 'g', 4, 32)
}

func nonZero(x float32) string {
	if x == 0 {
		return ""
	}
	return number(x)
}

func nonZeroTime(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return took(d)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// prefixed and suffixed are "" for "".
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func suffixed(s, suffix string) string {
	if s == "" {
		return ""
	}
	return s + suffix
}

// clip cuts a line to what a screen shows of it; what would move a terminal's cursor becomes a space.
func clip(s string, columns int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	return strings.TrimRight(runewidth.Truncate(s, columns, "…"), " ")
}
