package batch_test

import (
	"bufio"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cadence-slo/cadence/schema"
	"github.com/cadence-slo/cadence/schema/schematest"
	"github.com/cadence-slo/cadence/worker/batch"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios do into testdata instead of comparing")

// Scenario files in testdata are commands, each followed by what it printed. Commands:
//
//	config page_tokens=4 kv_pages=16 sequences=4 max_batch=4 batch_tokens=8 chunk_tokens=6 context_tokens=64 [mode=static
//	       static_wait=5 order=prefill_first contiguous prefix_cache cache_output overcommit=2 max_preemptions=1 step=1]
//	add ID PROMPT MAX_NEW [scope=a priority=1 deadline=9 first=5 late=cancel min=4 branch=8]
//	                  the prompt's tokens differ from others' from branch on
//	stop ID INDEX     fail ID     cancel ID     wait TIME     step [N]     flush
//
// A step prints its entries as id@position+tokens, with * where a token is asked for, what it preempted, and what is free
// after it; moves of cells come first, as copy SRC>DST or rebase SRC>DST or trim DST, and :TOKENS. A step takes 1.
//
// `go test ./worker/batch -run Scenarios -rewrite` writes the output lines (indented) anew: read the diff.
func TestScenarios(t *testing.T) {
	schematest.Scenarios(t, "testdata/*.txt", *rewrite, replay)
}

// replay runs a scenario's commands and returns it with its output lines.
func replay(t *testing.T, text string) string {
	var e *engine
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, "\t"+format+"\n", args...) }
	tell := func(outs []batch.Outcome) {
		for _, o := range outs {
			if o.Kind.Ended() {
				n := o.Index // of a last token, or the number of tokens
				if o.Kind == batch.KindStop || o.Kind == batch.KindLength {
					n++
				}
				say("%d ended: %s after %d tokens", o.ID, kinds[o.Kind], n)
			}
		}
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			continue // the output of an earlier run
		}
		out.WriteString(line + "\n")
		var a, b, c int
		verb, rest, _ := strings.Cut(line, " ")
		n, _ := fmt.Sscan(rest, &a, &b, &c)
		switch verb {
		case "", "#":
		case "config":
			cfg := batch.Config{}
			for _, field := range strings.Fields(rest) {
				configure(t, &cfg, field)
			}
			e = newEngine(t, cfg)
			e.said = say
		case "add":
			q := batch.Sequence{ID: batch.ID(a), Prompt: tokens(b), MaxNew: c}
			for _, field := range strings.Fields(rest)[3:] {
				key, value, _ := strings.Cut(field, "=")
				n, _ := strconv.Atoi(value)
				switch key {
				case "scope":
					q.Scope = value
				case "priority":
					q.Priority = n
				case "deadline":
					q.Deadline = time.Duration(n)
				case "first":
					q.FirstDeadline = time.Duration(n)
				case "late":
					q.OnDeadline = schema.OnDeadline(value)
				case "min":
					q.MinNew = n
				case "branch":
					for k := n; k < len(q.Prompt); k++ {
						q.Prompt[k] += int32(a) << 8
					}
				default:
					t.Fatalf("%q: unknown key", field)
				}
			}
			if err := e.addSequence(q); err != nil {
				say("%v", err)
			}
		case "wait":
			e.now += time.Duration(a)
		case "flush":
			e.p.Flush()
			e.move()
		case "stop":
			e.stop[batch.ID(a)] = b
		case "fail":
			e.fail[batch.ID(a)] = true
		case "cancel":
			outs := e.p.Cancel(batch.ID(a))
			e.apply(outs)
			tell(outs)
		case "step":
			if n == 0 {
				a = 1
			}
			for range a {
				p := e.plan()
				if p == nil {
					say("idle")
					break
				}
				var did []string
				for _, x := range p.Entries {
					what := fmt.Sprintf("%d@%d+%d", x.ID, x.Pos, len(x.Tokens))
					if x.Sample {
						what += "*"
					}
					did = append(did, what)
				}
				for _, x := range p.Preempted {
					did = append(did, fmt.Sprintf("preempted %d", x.ID))
				}
				e.now++
				outs := e.commit()
				u := e.p.Usage()
				say("%d: %s | wait %d, free %d seqs %d pages", p.Step, strings.Join(did, " "), u.Waiting, u.FreeSequences, u.FreePages)
				tell(outs)
			}
		default:
			t.Fatalf("unknown command %q", line)
		}
		if e != nil {
			e.check()
		}
	}
	return out.String()
}

// configure sets one key of a configuration.
func configure(t *testing.T, c *batch.Config, field string) {
	key, value, _ := strings.Cut(field, "=")
	n, _ := strconv.Atoi(value)
	if at := map[string]*int{
		"page_tokens": &c.PageTokens, "kv_pages": &c.KVPages, "sequences": &c.Sequences, "max_batch": &c.MaxBatch, "batch_tokens": &c.BatchTokens,
		"chunk_tokens": &c.ChunkTokens, "context_tokens": &c.ContextTokens, "max_preemptions": &c.MaxPreemptions,
	}[key]; at != nil {
		*at = n
		return
	}
	switch key {
	case "mode":
		c.Mode = batch.Mode(value)
	case "order":
		c.Order = batch.Order(value)
	case "static_wait":
		c.StaticWait = time.Duration(n)
	case "step":
		c.Speed.Step = time.Duration(n)
	case "contiguous":
		c.Contiguous = true
	case "prefix_cache":
		c.PrefixCache = true
	case "cache_output":
		c.CacheOutput = true
	case "overcommit":
		c.Overcommit = float64(n)
	default:
		t.Fatalf("%q: unknown key", field)
	}
}

var kinds = map[batch.Kind]string{batch.KindStop: "stop", batch.KindLength: "length", batch.KindFailed: "failed", batch.KindCancelled: "cancelled",
	batch.KindDeadline: "deadline"}
