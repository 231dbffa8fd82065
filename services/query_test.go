package services

import (
	"strings"
	"testing"
)

func TestQueryList(t *testing.T) {
	var list []struct {
		Name, Description, SQL string
		Params                 []struct {
			Name, Type, Default string
			Required            bool
		}
	}
	runJSON(t, &list, "query", "--list", "--json")
	_, table, _ := run("query", "--list")
	for _, q := range list {
		if q.Name == "" || q.Description == "" || q.SQL == "" || !strings.Contains(table, q.Name) {
			t.Errorf("%+v", q)
		}
	}
	if len(list) < 5 {
		t.Errorf("%d queries", len(list))
	}
}

func TestQueryErrors(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--list", nil},
		{"--list", []string{"  "}},
		{"cadence up", []string{"SELECT 1", "--data-dir", dir}},
		{"does not answer", []string{"SELECT 1", "--clickhouse-url", "http://user:hush@" + nobody(t)}},
		{"clickhouse", []string{"SELECT 1", "--clickhouse-url", "ftp://user:hush@h"}},
	} {
		status, _, errOut := run(append([]string{"query"}, c.args...)...)
		if status != 1 || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: %d, %s", c.args, status, errOut)
		}
		if strings.Contains(errOut, "hush") {
			t.Errorf("%q tells the password: %s", c.args, errOut)
		}
	}
}
