package analytics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/cadence-slo/cadence/analytics/sql"
)

// ErrMigration is wrapped by every error about the state of the schema, as opposed to
// errors of the server.
var ErrMigration = errors.New("analytics: migration")

// Migrate brings the schema of conn's database up to this binary's and returns the
// migrations that it ran. It may run beside live writers and beside another Migrate:
// every statement is idempotent, and none removes what an older writer uses. A
// database that is ahead of this binary is left as it is, so that an old service can
// restart during a rolling deploy.
//
// Errors wrap ErrMigration if a file was edited after it was applied, or if a database
// lacks a version below one that it has.
func Migrate(ctx context.Context, conn ch.Conn, logger *slog.Logger) ([]sql.Migration, error) {
	known, err := sql.Migrations()
	if err != nil {
		return nil, err
	}
	return migrate(ctx, conn, logger, known)
}

func migrate(ctx context.Context, conn ch.Conn, logger *slog.Logger, known []sql.Migration) ([]sql.Migration, error) {
	if err := conn.Exec(ctx, sql.Statement("schema_migrations")); err != nil {
		return nil, fmt.Errorf("analytics: creating schema_migrations: %w", err)
	}
	applied, err := appliedMigrations(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := compareMigrations(known, applied); err != nil {
		return nil, err
	}
	if len(applied) > len(known) {
		logger.LogAttrs(ctx, slog.LevelInfo, "database schema is ahead of this binary",
			slog.Int("database_version", len(applied)), slog.Int("binary_version", len(known)))
		return nil, nil
	}
	ran := known[len(applied):]
	for _, m := range ran {
		if err := runMigration(ctx, conn, m); err != nil {
			return nil, err
		}
		logger.LogAttrs(ctx, slog.LevelInfo, "migration applied", slog.Uint64("version", uint64(m.Version)), slog.String("name", m.Name))
	}
	return ran, nil
}

// appliedMigration is a version in the database; more than one checksum means that two
// binaries disagree.
type appliedMigration struct {
	version   uint32
	name      string
	checksums []string
}

func appliedMigrations(ctx context.Context, conn ch.Conn) ([]appliedMigration, error) {
	rows, err := conn.Query(ctx, sql.Statement("migrations_applied"))
	if err != nil {
		return nil, fmt.Errorf("analytics: reading schema_migrations: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var all []appliedMigration
	for rows.Next() {
		var m appliedMigration
		if err := rows.Scan(&m.version, &m.name, &m.checksums); err != nil {
			return nil, fmt.Errorf("analytics: reading schema_migrations: %w", err)
		}
		all = append(all, m)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("analytics: reading schema_migrations: %w", err)
	}
	return all, nil
}

// compareMigrations checks that the versions applied are the first ones, unedited.
func compareMigrations(known []sql.Migration, applied []appliedMigration) error {
	for i, a := range applied {
		if a.version != uint32(i+1) {
			return fmt.Errorf("%w: the database has version %d (%s) but not %d", ErrMigration, a.version, a.name, i+1)
		}
		if i >= len(known) {
			continue
		}
		if k := known[i]; !slices.Equal(a.checksums, []string{k.Checksum}) {
			return fmt.Errorf("%w: %04d_%s was edited after it was applied: the database has checksum %s, this binary %s; undo the edit and add a new file",
				ErrMigration, k.Version, k.Name, a.checksums, k.Checksum)
		}
	}
	return nil
}

func runMigration(ctx context.Context, conn ch.Conn, m sql.Migration) error {
	for i, statement := range m.Statements {
		if err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("analytics: migration %04d_%s, statement %d: %w", m.Version, m.Name, i+1, err)
		}
	}
	ctx = ch.Context(ctx, ch.WithParameters(ch.Parameters{
		"version": strconv.FormatUint(uint64(m.Version), 10), "name": m.Name, "checksum": m.Checksum,
	}))
	if err := conn.Exec(ctx, sql.Statement("migration_record")); err != nil {
		return fmt.Errorf("analytics: recording migration %04d_%s: %w", m.Version, m.Name, err)
	}
	return nil
}
