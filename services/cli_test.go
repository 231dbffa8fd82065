package services

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/cadence-slo/cadence/analytics/sql"
)

// run runs a command line to its end.
func run(args ...string) (status int, stdout, stderr string) {
	var out, errOut strings.Builder
	status = Main(args, "v0-test", &out, &errOut)
	return status, out.String(), errOut.String()
}

// commands are the words of every command, groups included.
func commands(t *testing.T) [][]string {
	t.Helper()
	k, err := parser(&CLI{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	var visit func(n *kong.Node, words []string)
	visit = func(n *kong.Node, words []string) {
		for _, c := range n.Children {
			below := append(append([]string(nil), words...), c.Name)
			all = append(all, below)
			visit(c, below)
		}
	}
	visit(k.Model.Node, nil)
	return all
}

// examples are the command lines of cadence in a text, as a shell would split them.
func examples(text string) [][]string {
	var all [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "bin/")
		rest, ok := strings.CutPrefix(line, "cadence ")
		if !ok {
			continue
		}
		rest, _, _ = strings.Cut(rest, " #")
		rest, _, _ = strings.Cut(rest, "   (")
		var words []string
		for i, quoted := range strings.Split(strings.TrimSuffix(rest, " &"), `"`) {
			if i%2 == 1 {
				words = append(words, quoted)
			} else {
				words = append(words, strings.Fields(quoted)...)
			}
		}
		all = append(all, words)
	}
	return all
}

// What a command's help, and the README, show can be typed, and the queries that they name exist.
func TestExamplesCanBeRun(t *testing.T) {
	texts := map[string]string{}
	for _, words := range commands(t) {
		name := strings.Join(words, " ")
		status, out, errOut := run(append(words, "--help")...)
		if status != 0 || errOut != "" {
			t.Errorf("%s: status %d, %s", name, status, errOut)
		}
		if len(examples(out)) == 0 {
			t.Errorf("the help of %s has no example", name)
		}
		texts[name] = out
	}
	_, texts["cadence"], _ = run()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	texts["README"] = string(readme)
	for where, text := range texts {
		if len(examples(text)) == 0 {
			t.Errorf("%s has no example", where)
		}
		for _, words := range examples(text) {
			if at := slices.Index(words, ">"); at >= 0 { // the shell's
				words = words[:at]
			}
			cli, err := parse(t, words...)
			if err != nil {
				t.Errorf("%s: cadence %q: %v", where, words, err)
				continue
			}
			if q := cli.Query.Query; q != "" && !strings.Contains(q, " ") {
				if _, err := sql.Lookup(q); err != nil {
					t.Errorf("%s: %v", where, err)
				}
			}
		}
	}
}

// What is set in the environment for a service says the same to every command that reads it.
func TestEnvironmentOfServicesIsTheirOwn(t *testing.T) {
	k, err := parser(&CLI{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	services := map[string]bool{"up": true, "ingress": true, "scheduler": true, "worker": true, "analytics": true, "trainer": true, "nats": true}
	meaning := func(f *kong.Flag) string {
		choices := f.EnumSlice()
		slices.Sort(choices)
		return fmt.Sprintf("%s of %q", f.Target.Type(), choices)
	}
	of := map[string]string{} // meanings of the services' variables
	var visit func(n *kong.Node, words string, see func(words, name string, f *kong.Flag))
	visit = func(n *kong.Node, words string, see func(words, name string, f *kong.Flag)) {
		for _, f := range n.Flags {
			for _, name := range f.Envs {
				see(words, name, f)
			}
		}
		for _, c := range n.Children {
			visit(c, strings.TrimSpace(words+" "+c.Name), see)
		}
	}
	check := func(words, name string, f *kong.Flag) {
		if of[name] != "" && of[name] != meaning(f) {
			t.Errorf("%s of %s is %s, of a service %s", name, words, meaning(f), of[name])
		}
	}
	for _, c := range k.Model.Children {
		if services[c.Name] {
			visit(c, c.Name, func(words, name string, f *kong.Flag) {
				check(words, name, f)
				of[name] = meaning(f)
			})
		}
	}
	if of["CADENCE_KV"] == "" || of["CADENCE_WORKER_KV"] == "" {
		t.Fatalf("%d variables, and none of a worker's", len(of))
	}
	visit(k.Model.Node, "", check)
}

func TestWithoutArgumentsItHelps(t *testing.T) {
	status, out, errOut := run()
	if status != 0 || errOut != "" || !strings.Contains(out, "Usage: cadence") || !strings.Contains(out, `"model":"default"`) {
		t.Errorf("%d, %s, %s", status, out, errOut)
	}
}

func TestVersion(t *testing.T) {
	if status, out, _ := run("version"); status != 0 || out != "cadence v0-test\n" {
		t.Errorf("%d, %q", status, out)
	}
}

// A wrong command line ends with status 2, says what is wrong and where help is.
func TestWrongCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"frobnicate":                      "frobnicate.*`cadence --help`",
		"model frobnicate":                "frobnicate.*`cadence model --help`",
		"up --frobnicate":                 "--frobnicate.*`cadence up --help`",
		"model synth huge":                "tiny.*huge.*`cadence model synth --help`",
		"up --listen 9000":                "listen.*host:port",
		"query --json --csv x":            "--json.*--csv",
		"up --durability none":            "--durability.*process.*power",
		"ingress --api-keys nokey":        "api-keys.*tenant:key",
		"up --tls-cert x":                 "tls-cert and tls-key",
		"worker --log-level loud":         "--log-level",
		"scheduler --nats-url http://n:1": "nats, tls, ws or wss",
	} {
		status, _, errOut := run(strings.Fields(line)...)
		if status != 2 || !regexp.MustCompile("(?s)"+want).MatchString(errOut) {
			t.Errorf("%s: %d, %s", line, status, errOut)
		}
	}
}

// Values that fit each other badly end a service at its start, with the flags' names.
func TestServicesNeedAServer(t *testing.T) {
	for _, service := range []string{"ingress", "scheduler", "worker", "analytics", "trainer"} {
		if status, _, errOut := run(service); status != 1 || !strings.Contains(errOut, "nats-url") {
			t.Errorf("%s: %d, %s", service, status, errOut)
		}
	}
	if status, _, errOut := run("up", "--backend", "mock", "--kv-tokens", "10", "--context-tokens", "20", "--data-dir", t.TempDir()); status != 1 || !strings.Contains(errOut, "context-tokens is 20") {
		t.Errorf("%d, %s", status, errOut)
	}
}
