package workload

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cadence-slo/cadence/bench/record"
)

// ErrTrace is returned for a trace that cannot be used; the message names the file and the line, or the option.
var ErrTrace = errors.New("workload: invalid trace")

// row is one request of a trace.
type row struct {
	at                  time.Duration // since the first row, or as the trace has it
	prompt              int           // tokens, ≥ 1
	limit               int           // ≥ output
	output              int           // ≥ 1
	blocks              []uint64      // identities of the prompt's blocks of blockTokens, from its beginning; what is not covered is unique
	index               int           // of the recorded request
	tenant, class, kind string
}

// blockTokens is the length of the blocks that Mooncake's traces hash.
const blockTokens = 512

// trace is a Timed of rows.
type trace struct {
	about  about
	rows   []row
	vocab  Vocabulary
	seed   uint64
	block  int // tokens of a block after scaling
	lap    int // more than any row's index
	slos   map[string]record.SLO
	origin *Generator // draws the requests again that were recorded; nil: they are made from rows
}

// about is what a trace says of itself in a run's record.
type about struct {
	Trace  string `json:"trace"` // azure, mooncake or record
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of the file
	Rows   int    `json:"rows"`   // used
	Of     int    `json:"of"`     // in the file
	Seed   uint64 `json:"seed"`   // of the token ids

	Tokens      float64       `json:"tokens"`              // lengths are the trace's times this
	From        time.Duration `json:"from_ns"`             // the window begins there in the trace
	Length      time.Duration `json:"length_ns,omitempty"` // of the window; 0: to the trace's end
	NativeRate  float64       `json:"native_rate"`         // mean in the window, requests/s
	Rate        float64       `json:"rate"`                // as used
	TimeStretch float64       `json:"time_stretch"`        // times are the trace's times this; 1 unless a rate was asked for

	Estimated int             `json:"estimated_rows,omitempty"` // rows whose answer was not recorded to its end
	Origin    json.RawMessage `json:"origin,omitempty"`         // the workload whose requests were recorded, if they are drawn again
}

// options are what may stand behind the file's name.
type options struct {
	tokens       float64
	from, length time.Duration
	rate         float64
}

// optionHelp says what they may be.
const optionHelp = "allowed: tokens (factor of all lengths), from and length (durations, a window of the trace), rate (requests/s, stretches its times)"

// splitOptions splits FILE?key=value&… .
func splitOptions(text string) (file string, o options, err error) {
	file, query, _ := strings.Cut(text, "?")
	o = options{tokens: 1}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", o, fmt.Errorf("%w: options %q: %w", ErrTrace, query, err)
	}
	for key, v := range values {
		value, ok := v[len(v)-1], false
		switch key {
		case "tokens":
			o.tokens, err = strconv.ParseFloat(value, 64)
			ok = err == nil && o.tokens > 0 && o.tokens <= 1e3
		case "rate":
			o.rate, err = strconv.ParseFloat(value, 64)
			ok = err == nil && o.rate > 0 && o.rate <= 1e9
		case "from":
			o.from, err = time.ParseDuration(value)
			ok = err == nil && o.from >= 0
		case "length":
			o.length, err = time.ParseDuration(value)
			ok = err == nil && o.length > 0
		}
		if !ok {
			return "", o, fmt.Errorf("%w: option %s=%s; %s", ErrTrace, key, value, optionHelp)
		}
	}
	if file == "" {
		return "", o, fmt.Errorf("%w: the name of the file is empty", ErrTrace)
	}
	return file, o, nil
}

// newTrace takes the rows of a file through the options.
func newTrace(kind, file string, content []byte, rows []row, o options, vocab Vocabulary, seed uint64) (*trace, error) {
	if len(vocab) < 2 {
		return nil, fmt.Errorf("%w: a vocabulary of %d token ids, at least 2 are needed", ErrSpec, len(vocab))
	}
	sum := sha256.Sum256(content)
	t := &trace{vocab: vocab, seed: seed, block: scale(blockTokens, o.tokens), about: about{
		Trace: kind, File: file, SHA256: hex.EncodeToString(sum[:]), Of: len(rows), Seed: seed, Tokens: o.tokens, From: o.from, Length: o.length, TimeStretch: 1,
	}}
	first, _ := slices.BinarySearchFunc(rows, o.from, func(r row, at time.Duration) int { return cmp.Compare(r.at, at) })
	t.rows = rows[first:]
	if o.length > 0 {
		n, _ := slices.BinarySearchFunc(t.rows, o.from+o.length, func(r row, at time.Duration) int { return cmp.Compare(r.at, at) })
		t.rows = t.rows[:n]
	}
	if len(t.rows) == 0 {
		return nil, fmt.Errorf("%w: %s has no request in the window from %v of length %v (0s: to the end); it has %d in all", ErrTrace, file, o.from, o.length, len(rows))
	}
	for i := range t.rows {
		r := &t.rows[i]
		t.lap = max(t.lap, r.index+1)
		r.at -= o.from
		r.prompt = scale(r.prompt%blockTokens, o.tokens) + r.prompt/blockTokens*t.block
		if r.prompt > maxTokens {
			return nil, fmt.Errorf("%w: %s has a prompt of %d tokens, allowed: up to %d; make it shorter with tokens", ErrTrace, file, r.prompt, maxTokens)
		}
		r.output = scale(r.output, o.tokens)
		r.limit = max(r.output, scale(r.limit, o.tokens))
	}
	t.about.Rows = len(t.rows)
	if span := t.rows[len(t.rows)-1].at - t.rows[0].at; span > 0 {
		t.about.NativeRate = float64(len(t.rows)-1) / span.Seconds()
	}
	t.about.Rate = t.about.NativeRate
	if o.rate > 0 {
		if t.about.NativeRate == 0 {
			return nil, fmt.Errorf("%w: %s has no rate of its own that rate=%v could change", ErrTrace, file, o.rate)
		}
		t.about.Rate, t.about.TimeStretch = o.rate, t.about.NativeRate/o.rate
		if last := float64(t.rows[len(t.rows)-1].at); last*t.about.TimeStretch > math.MaxInt64/2 {
			return nil, fmt.Errorf("%w: at rate=%v, %s lasts for centuries", ErrTrace, o.rate, file)
		}
	}
	return t, nil
}

// scale is n times by, rounded, at least 1 (0 of 0).
func scale(n int, by float64) int {
	if n == 0 {
		return 0
	}
	return max(1, int(min(math.Round(float64(n)*by), 2*maxTokens)))
}

// Name implements Source: the file's name, or the directory's of a run, with the options that change what it offers.
func (t *trace) Name() string {
	path := t.about.File
	if t.about.Trace == "record" {
		path = filepath.Dir(path)
	}
	a := &t.about
	var said []string
	say := func(changed bool, key string, value any) {
		if changed {
			said = append(said, fmt.Sprint(key, "=", value))
		}
	}
	say(a.From > 0, "from", a.From)
	say(a.Length > 0, "length", a.Length)
	say(a.TimeStretch != 1, "rate", a.Rate)
	say(a.Tokens != 1, "tokens", a.Tokens)
	name := a.Trace + ":" + filepath.Base(path)
	if len(said) > 0 {
		name += "?" + strings.Join(said, "&")
	}
	return name
}

// Describe implements Source.
func (t *trace) Describe() json.RawMessage { return describe(&t.about) }

// SLOs implements Source.
func (t *trace) SLOs() map[string]record.SLO { return maps.Clone(t.slos) }

// Arrivals implements Timed.
func (t *trace) Arrivals() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := range t.rows {
			at := t.rows[i].at
			if t.about.TimeStretch != 1 {
				at = time.Duration(math.Round(float64(at) * t.about.TimeStretch))
			}
			if !yield(at) {
				return
			}
		}
	}
}

// Request implements Source. Behind the end of the trace come its lengths from the beginning again, with token ids of their
// own but for shared blocks.
func (t *trace) Request(i int) Request {
	r := &t.rows[i%len(t.rows)]
	if t.origin != nil {
		q := t.origin.Request(r.index + i/len(t.rows)*t.lap)
		q.Index = i
		return q
	}
	q := Request{Index: i, System: -1, Cap: r.limit, Output: r.output, Tenant: r.tenant, Class: r.class, Kind: r.kind}
	for _, b := range r.blocks {
		q.Prompt = t.vocab.draw(source(t.seed, streamBlock, b), q.Prompt, min(t.block, r.prompt-len(q.Prompt)))
	}
	q.Prompt = t.vocab.draw(source(t.seed, streamRequest, uint64(i)), q.Prompt, r.prompt-len(q.Prompt))
	return q
}

// located puts file and line before what is wrong there.
func located(file string, line int, format string, args ...any) error {
	return fmt.Errorf("%w: %s:%d: "+format, append([]any{ErrTrace, file, line}, args...)...)
}

// readTrace reads a trace's file whole.
func readTrace(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	return b, nil
}
