package sql

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql queries/*.sql statements/*.sql
var files embed.FS

// ErrFile is wrapped by every error about a file that breaks the rules of this package.
var ErrFile = errors.New("sql: invalid file")

// ErrUnknownQuery is returned for a name that no file has.
var ErrUnknownQuery = errors.New("sql: unknown query")

// Migration is one numbered file.
type Migration struct {
	// Version counts from 1 without gaps.
	Version uint32
	// Name is the file's name without number and extension.
	Name string
	// Checksum is the SHA-256 of the file, in hex.
	Checksum string
	// Statements are to be run in order.
	Statements []string
}

var migrationName = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)

// Migrations returns all migrations by version.
func Migrations() ([]Migration, error) { return LoadMigrations(files, "migrations") }

// LoadMigrations reads the migrations in folder dir of fsys.
func LoadMigrations(fsys fs.FS, dir string) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	all := make([]Migration, 0, len(entries))
	for i, entry := range entries { // sorted by name
		match := migrationName.FindStringSubmatch(entry.Name())
		if match == nil {
			return nil, fmt.Errorf("%w: %s: want a name like 0001_some_words.sql", ErrFile, entry.Name())
		}
		version, err := strconv.ParseUint(match[1], 10, 32)
		if err != nil || version != uint64(i+1) {
			return nil, fmt.Errorf("%w: %s: want number %04d: they count from 1 without gaps", ErrFile, entry.Name(), i+1)
		}
		text, err := fs.ReadFile(fsys, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		sum := sha256.Sum256(text)
		m := Migration{
			Version: uint32(version), Name: match[2], Checksum: hex.EncodeToString(sum[:]), Statements: Statements(string(text)),
		}
		if len(m.Statements) == 0 {
			return nil, fmt.Errorf("%w: %s: no statement", ErrFile, entry.Name())
		}
		all = append(all, m)
	}
	return all, nil
}

// Statement returns the text of statements/name.sql, which holds one statement. It
// panics if there is no such file: names are constants of this module.
func Statement(name string) string {
	text, err := files.ReadFile("statements/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	statements := Statements(string(text))
	if len(statements) != 1 {
		panic(fmt.Sprintf("sql: statements/%s.sql holds %d statements, want 1", name, len(statements)))
	}
	return statements[0]
}

// Query is a named query.
type Query struct {
	Name string `json:"name"`
	// Description is the file's leading comment, one paragraph a line.
	Description string `json:"description"`
	// Params are in the order of the file's leading comment.
	Params []Param `json:"params"`
	// Text is the statement, without a semicolon.
	Text string `json:"sql"`
}

// Param is a parameter of a named query.
type Param struct {
	Name string `json:"name"`
	// Type is the ClickHouse type that the value must parse as.
	Type string `json:"type"`
	// Default is used where no value is given, unless Required.
	Default     string `json:"default"`
	Required    bool   `json:"required"`
	Description string `json:"description"`
}

// Queries returns all named queries by name.
func Queries() ([]Query, error) { return LoadQueries(files, "queries") }

// LoadQueries reads the named queries in folder dir of fsys.
func LoadQueries(fsys fs.FS, dir string) ([]Query, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	all := make([]Query, 0, len(entries))
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), ".sql")
		if !ok {
			return nil, fmt.Errorf("%w: %s: want a name that ends in .sql", ErrFile, entry.Name())
		}
		text, err := fs.ReadFile(fsys, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		q, err := parseQuery(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFile, entry.Name(), err)
		}
		all = append(all, q)
	}
	return all, nil
}

// Lookup returns the named query, or an error that wraps ErrUnknownQuery and lists the
// names there are.
func Lookup(name string) (Query, error) {
	all, err := Queries()
	if err != nil {
		return Query{}, err
	}
	names := make([]string, 0, len(all))
	for _, q := range all {
		if q.Name == name {
			return q, nil
		}
		names = append(names, q.Name)
	}
	return Query{}, fmt.Errorf("%w: %q; there are %s", ErrUnknownQuery, name, strings.Join(names, ", "))
}

// paramLine is `:param name Type = default  Description`, or `required` in the place of
// `= default`. The type holds no space, the default none either unless it is quoted
// with '.
var paramLine = regexp.MustCompile(`^:param (\w+) (\S+) (?:required|= ('[^']*'|\S+))\s+(\S.*)$`)

// parseQuery reads a file: a comment block that describes it, then one statement.
func parseQuery(name, text string) (Query, error) {
	q := Query{Name: name}
	var paragraphs []string
	paragraph := ""
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "--")
		if !ok {
			break
		}
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, ":"):
			match := paramLine.FindStringSubmatch(line)
			if match == nil {
				return q, fmt.Errorf("%q: want `:param name Type = default Description`, or required for = default", line)
			}
			q.Params = append(q.Params, Param{
				Name: match[1], Type: match[2], Default: strings.Trim(match[3], "'"), Required: match[3] == "", Description: match[4],
			})
		case line == "" && paragraph != "":
			paragraphs, paragraph = append(paragraphs, paragraph), ""
		case line != "":
			paragraph = strings.TrimSpace(paragraph + " " + line)
		}
	}
	if paragraph != "" {
		paragraphs = append(paragraphs, paragraph)
	}
	q.Description = strings.Join(paragraphs, "\n")
	if q.Description == "" {
		return q, errors.New("no leading comment that describes it")
	}

	statements := Statements(text)
	if len(statements) != 1 {
		return q, fmt.Errorf("%d statements, want 1", len(statements))
	}
	q.Text = withoutComments(statements[0])
	declared := map[Placeholder]bool{}
	for _, p := range q.Params {
		declared[Placeholder{Name: p.Name, Type: p.Type}] = false
	}
	for _, p := range Placeholders(q.Text) {
		if _, ok := declared[p]; !ok {
			return q, fmt.Errorf("placeholder {%s:%s} has no :param line with that type", p.Name, p.Type)
		}
		declared[p] = true
	}
	for p, used := range declared {
		if !used {
			return q, fmt.Errorf(":param %s %s is not used", p.Name, p.Type)
		}
	}
	return q, nil
}

// withoutComments drops the comments of a statement: a server's query log should hold
// the query.
func withoutComments(text string) string {
	var b strings.Builder
	for _, t := range tokens(text) {
		if t.kind != comment {
			b.WriteString(t.text)
		}
	}
	return strings.TrimSpace(b.String())
}
