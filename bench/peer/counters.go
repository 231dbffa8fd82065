package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Counters of a worker that tell what its prefix cache has found.
const (
	counterPrompt = "cadence_worker_prompt_tokens_total"
	counterCached = "cadence_worker_cached_tokens_total"
)

// found is what a worker's counters say.
type found struct{ prompt, cached int }

// counters asks a process for its metrics; a counter that it does not have is 0.
func counters(ctx context.Context, address string) (found, error) {
	var f found
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return f, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return f, fmt.Errorf("peer: asking for metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return f, fmt.Errorf("peer: asking for metrics: %s", res.Status)
	}
	return parseCounters(res.Body)
}

// parseCounters reads the text form of metrics.
func parseCounters(r io.Reader) (f found, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		for name, to := range map[string]*int{counterPrompt: &f.prompt, counterCached: &f.cached} {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
				continue
			}
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				return f, fmt.Errorf("peer: metrics line %q: %w", line, err)
			}
			*to += int(v)
		}
	}
	return f, lines.Err()
}

// freeAddr returns a loopback address that nobody listens on now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("peer: finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
