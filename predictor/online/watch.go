package online

import (
	"time"

	"github.com/cadence-slo/cadence/predictor/conformal"
)

// Kind says what an alarm is about.
type Kind uint8

// The kinds of alarm.
const (
	Calm    Kind = iota
	TooHigh      // bounds hold by more than they promise: the engine has become faster
	TooLow       // bounds do not hold any more: it has become slower
)

var kindNames = [...]string{Calm: "calm", TooHigh: "bounds_too_high", TooLow: "bounds_too_low"}

// String is the kind's name, in metrics and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

const (
	// falseAlarm is how many rows there are between two false alarms of one kind, if rows are independent.
	falseAlarm = 20_000
	// least is how many rows since a change make a margin at least.
	least = 20
	// calmAfter is how many rows without another one end an alarm.
	calmAfter = 200
)

// watch raises an alarm when the coverage of what was claimed leaves its level.
type watch struct {
	cusum *conformal.CUSUM // nil: the level is too near to 0 or 1
	kind  Kind
	since time.Duration
	quiet int // rows since
}

func (w *watch) begin(alpha float64) (err error) {
	factor := min(2, 0.95/alpha)
	if factor < 1.25 || alpha < 0.001 {
		return nil
	}
	w.cusum, err = conformal.NewCUSUM(alpha, factor, falseAlarm)
	return err
}

// observe counts a claimed bound. rows is, if it raises an alarm, how many there were since coverage left its level, as far as that can be
// told; else 0.
func (w *watch) observe(miss bool, now time.Duration) (rows int) {
	if w.cusum == nil {
		return 0
	}
	if a, ok := w.cusum.Observe(miss); ok {
		w.kind, w.since, w.quiet = TooLow, now, 0
		if a.Side == conformal.TooFewMisses {
			w.kind = TooHigh
		}
		return max(1, a.Rows)
	}
	if w.quiet++; w.quiet >= calmAfter {
		w.kind, w.since = Calm, 0
	}
	return 0
}

// Alarm says whether the coverage of claimed bounds has left its level, which way, and since when that is known; Calm and 0 if it has
// not, or is back for some hundred rows. A predictor reacts to it itself: it forgets what was before the change.
func (p *Predictor) Alarm() (since time.Duration, kind Kind) { return p.watch.since, p.watch.kind }

// heed looks at what became of a bound that was claimed for a request of the rule.
func (p *Predictor) heed(t *tracked, r *conformal.Resolution) {
	if p.frozen != nil || !t.in || t.Bound <= 0 || r.Verdict != conformal.Hit && r.Verdict != conformal.Miss {
		return
	}
	if rows := p.watch.observe(r.Verdict == conformal.Miss, p.now); rows > 0 {
		// The oldest of the rows since it was level may be from before the change still.
		rows = max(rows*2/3, min(least, conformal.MinRows(1-p.cfg.Level)))
		for p.past.n > rows {
			p.pool = append(p.pool, p.past.pop())
		}
		_ = p.recall(least) // of rows that margins took before
	}
}
