package chat_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cadence-slo/cadence/ingress/chat"
)

// A template that would not end, or would take the process with it, ends in an error that says why.
func TestBudget(t *testing.T) {
	doubled := strings.Repeat("{% set x = (x or 'ab') + (x or 'ab') %}", 60)
	for name, c := range map[string]struct {
		src  string
		want error
		word string
	}{
		"million iterations": {"{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}", chat.ErrRender, "steps"},
		"continued loops":    {"{% for i in range(999) %}{% for j in range(999) %}{% continue %}{% endfor %}{% endfor %}", chat.ErrRender, "steps"},
		"endless macro":      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", chat.ErrRender, "deeper"},
		"macros in turn":     {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", chat.ErrRender, "deeper"},
		"forking macro":      {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}", chat.ErrRender, "steps"},
		"caller":             {"{% macro f() %}{% call f() %}x{% endcall %}{% endmacro %}{{ f() }}", chat.ErrRender, "deeper"},
		"doubled text":       {doubled, chat.ErrRender, "bytes"},
		"doubled attribute":  {"{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", chat.ErrRender, "bytes"},
		"doubled list":       {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", chat.ErrRender, "elements"},
		"recursive loop":     {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", chat.ErrCompile, "recursive"},
		"block of itself":    {"{% block a %}{{ self.a() }}{% endblock %}", chat.ErrCompile, "block"},
		"nested brackets":    {"{{ " + strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000) + " }}", chat.ErrCompile, "nested"},
		"large template":     {strings.Repeat("x", 300_000), chat.ErrCompile, "bytes"},
		"includes a file":    {"{% include '/etc/hostname' %}", chat.ErrCompile, "include"},
	} {
		tpl, err := chat.Compile(c.src, chat.Options{})
		if err == nil {
			_, err = tpl.Render([]chat.Message{{Role: "user", Content: "x"}}, true)
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %.200v; want %v with %q", name, err, c.want, c.word)
		}
	}
}

// What is counted is one rendering, and macros that have returned do not count as nested.
func TestBudgetIsPerRendering(t *testing.T) {
	tpl, err := chat.Compile("{% macro f(x) %}{{ x }}{% endmacro %}{% for i in range(1000) %}{{ f('y') }}{% endfor %}", chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if got, err := tpl.Render(nil, true); err != nil || got != strings.Repeat("y", 1000) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}
