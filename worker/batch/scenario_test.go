package batch_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/worker/batch"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios do into testdata instead of comparing")

// Scenario files in testdata are commands, each followed by what it printed. Commands:
//
//	config page_tokens=4 kv_pages=16 sequences=4 max_batch=4 batch_tokens=8 chunk_tokens=6 context_tokens=64
//	add ID PROMPT MAX_NEW     stop ID INDEX     fail ID     cancel ID     step [N]
//
// `go test ./worker/batch -run Scenarios -rewrite` writes the output lines (indented) anew: read the diff.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s differs; got:\n%s", file, got)
			}
		})
	}
}

// replay runs a scenario's commands and returns it with its output lines.
func replay(t *testing.T, text string) string {
	var e *engine
	var out strings.Builder
	// A step prints its entries as id@position+tokens, with * where a token is asked for, and what is free after it.
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
			if _, err := fmt.Sscanf(rest, "page_tokens=%d kv_pages=%d sequences=%d max_batch=%d batch_tokens=%d chunk_tokens=%d context_tokens=%d",
				&cfg.PageTokens, &cfg.KVPages, &cfg.Sequences, &cfg.MaxBatch, &cfg.BatchTokens, &cfg.ChunkTokens, &cfg.ContextTokens); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			e = newEngine(t, cfg)
		case "add":
			if err := e.add(batch.ID(a), b, c); err != nil {
				say("%v", err)
			}
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

var kinds = map[batch.Kind]string{batch.KindStop: "stop", batch.KindLength: "length", batch.KindFailed: "failed", batch.KindCancelled: "cancelled"}
