package sql

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

func TestStatements(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"two":                {"SELECT 1; SELECT 2;\n", []string{"SELECT 1", "SELECT 2"}},
		"only comments":      {"-- a;\n/* b; */ ;; # c;\n", nil},
		"leading comment":    {"-- a; b\nSELECT 1", []string{"-- a; b\nSELECT 1"}},
		"string":             {`SELECT ';', '\';', ''';'`, []string{`SELECT ';', '\';', ''';'`}},
		"names":              {"SELECT `;`, \";\"; SELECT 2", []string{"SELECT `;`, \";\"", "SELECT 2"}},
		"heredoc":            {"SELECT $x$;'$x$; SELECT $$;$$", []string{"SELECT $x$;'$x$", "SELECT $$;$$"}},
		"no heredoc":         {"SELECT $1; SELECT 2", []string{"SELECT $1", "SELECT 2"}},
		"comment in string":  {"SELECT '--'; SELECT '/*'", []string{"SELECT '--'", "SELECT '/*'"}},
		"string in comment":  {"SELECT 1 -- don't\n; SELECT 2", []string{"SELECT 1 -- don't", "SELECT 2"}},
		"unclosed string":    {"SELECT 'a; b", []string{"SELECT 'a; b"}},
		"unclosed comment":   {"SELECT 1 /* ; ", []string{"SELECT 1 /* ;"}},
		"hash is no comment": {"SELECT '#'; SELECT 1#2; 3", []string{"SELECT '#'", "SELECT 1#2", "3"}},
	} {
		if got := Statements(test.text); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	got := Placeholders(`SELECT {a:UInt8}, '{no:UInt8}', {b : String}, {'k':1}, {a:UInt8}, {a:String}, -- {no:Int8}
		{t:DateTime64(3, 'UTC')}, {x:}, {y`)
	want := []Placeholder{{"a", "UInt8"}, {"a", "String"}, {"t", "DateTime64(3, 'UTC')"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// The tokens of any text concatenate to it, and no statement holds a separator.
func FuzzTokens(f *testing.F) {
	for _, seed := range []string{"SELECT 1; -- x\n'a;'", "/* ; */ $a$ ; $a$", "{a:B} ` \\", "# x;\n;#!"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b strings.Builder
		for _, tok := range tokens(text) {
			if tok.text == "" {
				t.Fatal("an empty token")
			}
			b.WriteString(tok.text)
		}
		if b.String() != text {
			t.Fatalf("%q became %q", text, b.String())
		}
		for _, s := range Statements(text) {
			for _, tok := range tokens(s) {
				if tok.kind == separator {
					t.Fatalf("statement %q holds a separator", s)
				}
			}
		}
	})
}

func TestEmbeddedFiles(t *testing.T) {
	migrations, err := Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		for _, s := range m.Statements {
			if !strings.Contains(s, "IF NOT EXISTS") && !strings.Contains(s, "OR REPLACE") {
				t.Errorf("%04d_%s: a statement is not idempotent:\n%s", m.Version, m.Name, s)
			}
		}
	}
	queries, err := Queries()
	if err != nil {
		t.Fatal(err)
	}
	if len(queries) == 0 {
		t.Error("no named query")
	}
	entries, err := files.ReadDir("statements")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if Statement(strings.TrimSuffix(e.Name(), ".sql")) == "" {
			t.Errorf("%s is empty", e.Name())
		}
	}
}

func TestLoadMigrations(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := LoadMigrations(fstest.MapFS{"m/0001_a_b.sql": file("-- why\nSELECT 1;\nSELECT 2\n"), "m/0002_c.sql": file("SELECT 3")}, "m")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Version != 1 || got[0].Name != "a_b" || len(got[0].Statements) != 2 || got[1].Checksum == got[0].Checksum {
		t.Errorf("%+v", got)
	}
	for text, fsys := range map[string]fstest.MapFS{
		"want number 0001":        {"m/0002_a.sql": file("SELECT 1")},
		"want number 0002":        {"m/0001_a.sql": file("SELECT 1"), "m/0001_b.sql": file("SELECT 1")},
		"want a name like":        {"m/1_a.sql": file("SELECT 1")},
		"no statement":            {"m/0001_a.sql": file("-- nothing\n")},
		"file does not exist":     {},
		"0001-a.sql: want a name": {"m/0001-a.sql": file("SELECT 1")},
	} {
		if _, err := LoadMigrations(fsys, "m"); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: err = %v", text, err)
		}
	}
}

func TestLoadQueries(t *testing.T) {
	load := func(text string) (Query, error) {
		all, err := LoadQueries(fstest.MapFS{"q/a.sql": {Data: []byte(text)}}, "q")
		if err != nil {
			return Query{}, err
		}
		return all[0], nil
	}
	got, err := load("-- What it\n-- shows.\n--\n-- More.\n--\n-- :param since DateTime64(3) = -1h  from when on\n-- :param name String = ''  whose\n" +
		"-- :param id UUID required  which\nSELECT {since:DateTime64(3)}, -- note\n  {name:String}, {id:UUID};\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Query{
		Name: "a", Description: "What it shows.\nMore.",
		Params: []Param{{"since", "DateTime64(3)", "-1h", false, "from when on"}, {"name", "String", "", false, "whose"}, {"id", "UUID", "", true, "which"}},
		Text:   "SELECT {since:DateTime64(3)},   {name:String}, {id:UUID}",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for text, file := range map[string]string{
		"no leading comment":        "SELECT 1",
		"0 statements":              "-- a\n",
		"2 statements":              "-- a\nSELECT 1; SELECT 2",
		"want `:param name Type":    "-- a\n-- :param x\nSELECT 1",
		"{x:Int8} has no :param":    "-- a\nSELECT {x:Int8}",
		"{x:Int16} has no :param":   "-- a\n-- :param x Int8 = 1  b\nSELECT {x:Int8}, {x:Int16}",
		":param x Int8 is not used": "-- a\n-- :param x Int8 = 1  b\nSELECT 1",
	} {
		if _, err := load(file); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: err = %v", text, err)
		}
	}
}

func TestLookup(t *testing.T) {
	if q, err := Lookup("recent_requests"); err != nil || q.Name != "recent_requests" {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := Lookup("nothing"); !errors.Is(err, ErrUnknownQuery) || !strings.Contains(err.Error(), "recent_requests") {
		t.Errorf("err = %v", err)
	}
}

func BenchmarkPlaceholders(b *testing.B) {
	q, err := Lookup("latency_breakdown")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Placeholders(q.Text)
	}
}
