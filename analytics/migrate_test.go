package analytics

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cadence-slo/cadence/analytics/sql"
)

func TestMigrateOnceFromMany(t *testing.T) {
	conn := open(t)
	known, err := sql.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := Migrate(t.Context(), conn, quiet); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ran, err := Migrate(t.Context(), conn, quiet)
	if err != nil || len(ran) != 0 {
		t.Errorf("again: %d ran, %v", len(ran), err)
	}
	var versions uint64
	scan(t, conn, "SELECT uniqExact(version) FROM schema_migrations", &versions)
	if versions != uint64(len(known)) {
		t.Errorf("%d versions recorded, want %d", versions, len(known))
	}
}

// A migrator that died after a statement and before its entry repeats the statement,
// with rows in the tables.
func TestMigrateRepeatsWhatWasNotRecorded(t *testing.T) {
	conn := migrated(t)
	exec(t, conn, "INSERT INTO events (type, ts, stored, stream_id, seq) VALUES ('received', now64(), now64(), 's', 1)")
	exec(t, conn, "TRUNCATE TABLE schema_migrations")
	if _, err := Migrate(t.Context(), conn, quiet); err != nil {
		t.Fatal(err)
	}
	var rows uint64
	scan(t, conn, "SELECT count() FROM events", &rows)
	if rows != 1 {
		t.Errorf("%d rows, want 1", rows)
	}
}

func TestMigrateRefusesEditedFilesAndGaps(t *testing.T) {
	conn := migrated(t)
	known, err := sql.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	edited := slices.Clone(known)
	edited[1].Checksum = strings.Repeat("0", 64)
	if _, err := migrate(t.Context(), conn, quiet, edited); !errors.Is(err, ErrMigration) || !strings.Contains(err.Error(), "0002_engine_steps was edited") {
		t.Errorf("edited: %v", err)
	}
	// A rolling deploy: the old binary meets the new schema.
	if ran, err := migrate(t.Context(), conn, quiet, known[:2]); err != nil || len(ran) != 0 {
		t.Errorf("older binary: %d ran, %v", len(ran), err)
	}
	exec(t, conn, "DELETE FROM schema_migrations WHERE version = 2")
	if _, err := migrate(t.Context(), conn, quiet, known); !errors.Is(err, ErrMigration) || !strings.Contains(err.Error(), "version 3 (projector_positions) but not 2") {
		t.Errorf("gap: %v", err)
	}
}

func TestMigrateNamesTheStatementThatFails(t *testing.T) {
	conn := open(t)
	bad := []sql.Migration{{Version: 1, Name: "bad", Checksum: "x", Statements: []string{"SELECT 1", "CREATE TABL x"}}}
	if _, err := migrate(t.Context(), conn, quiet, bad); err == nil || !strings.Contains(err.Error(), "0001_bad, statement 2") {
		t.Errorf("err = %v", err)
	}
	var recorded uint64
	scan(t, conn, "SELECT count() FROM schema_migrations", &recorded)
	if recorded != 0 {
		t.Error("a failed migration was recorded")
	}
}

// Analysts and the projector rely on these names, types and units.
func TestTablesMatchTheProjector(t *testing.T) {
	conn := migrated(t)
	for _, test := range []struct {
		table string
		block block
	}{{"events", newEventBlock("")}, {"engine_steps", newStepBlock("")}} {
		rows, err := conn.Query(t.Context(), "SELECT name, type, comment FROM system.columns WHERE database = currentDatabase() AND table = '"+test.table+"'")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		have := map[string]string{}
		for rows.Next() {
			var name, typ, comment string
			if err := rows.Scan(&name, &typ, &comment); err != nil {
				t.Fatal(err)
			}
			have[name] = typ
			if inner, ok := strings.CutPrefix(typ, "LowCardinality("); ok {
				have[name] = strings.TrimSuffix(inner, ")")
			}
			if comment == "" {
				t.Errorf("%s.%s has no comment", test.table, name)
			}
			if strings.HasSuffix(name, "_ns") && !strings.Contains(comment, "ns") {
				t.Errorf("%s.%s: the comment does not name the unit", test.table, name)
			}
		}
		statement := oneLine(sql.Statement(test.table + "_insert"))
		_, list, _ := strings.Cut(strings.TrimSuffix(statement, " )"), "( ")
		inserted := strings.Split(list, ", ")
		specs := test.block.set().specs()
		if len(specs) != len(have) || len(specs) != len(inserted) {
			t.Fatalf("%s: %d columns in the block, %d in the table, %d in the insert", test.table, len(specs), len(have), len(inserted))
		}
		for i, spec := range specs {
			if inserted[i] != spec.Name {
				t.Errorf("%s: column %d is %s in the block and %s in the insert", test.table, i, spec.Name, inserted[i])
			}
			if have[spec.Name] != spec.Type {
				t.Errorf("%s.%s: block sends %s, table has %s", test.table, spec.Name, spec.Type, have[spec.Name])
			}
		}
	}
}

func TestRetention(t *testing.T) {
	conn := migrated(t)
	for _, table := range []string{"events", "engine_steps"} {
		for _, days := range []int{0, 30, 30, 7, 0, 0, 1} {
			if err := setRetention(t.Context(), conn, table, days, quiet); err != nil {
				t.Fatal(err)
			}
			var ddl string
			scan(t, conn, "SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = '"+table+"'", &ddl)
			if got := strings.Contains(ddl, "TTL toDateTime(stored)"); got != (days > 0) {
				t.Errorf("%s, %d days: %s", table, days, ddl)
			}
		}
	}
	// What is over its time goes with the next merge.
	exec(t, conn, "INSERT INTO events (type, ts, stored, stream_id, seq) VALUES ('received', now64() - 864000, now64() - 864000, 's', 1), ('received', now64(), now64(), 's', 2)")
	exec(t, conn, "OPTIMIZE TABLE events FINAL")
	var left uint64
	scan(t, conn, "SELECT min(seq) FROM events", &left)
	if left != 2 {
		t.Errorf("oldest row is %d, want 2", left)
	}
}
