package pipeline

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Counters are what the workers of a process have counted since it started.
type Counters struct {
	Prompt      int // tokens of prompts
	Cached      int // of those, found in the prefix cache
	Preemptions int
}

// Less returns what was counted since before.
func (c Counters) Less(before Counters) Counters {
	return Counters{c.Prompt - before.Prompt, c.Cached - before.Cached, c.Preemptions - before.Preemptions}
}

// ReadCounters asks a process at host:port for its metrics; a counter that it does not have is 0.
func ReadCounters(ctx context.Context, address string) (Counters, error) {
	var c Counters
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return c, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, fmt.Errorf("pipeline: asking for metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return c, fmt.Errorf("pipeline: asking for metrics: %s", res.Status)
	}
	return parseCounters(res.Body)
}

// parseCounters reads the text form of metrics.
func parseCounters(r io.Reader) (c Counters, err error) {
	counters := map[string]*int{
		"cadence_worker_prompt_tokens_total": &c.Prompt, "cadence_worker_cached_tokens_total": &c.Cached, "cadence_worker_preemptions_total": &c.Preemptions,
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		for name, to := range counters {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
				continue
			}
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				return c, fmt.Errorf("pipeline: metrics line %q: %w", line, err)
			}
			*to += int(v)
		}
	}
	return c, lines.Err()
}
