// Package sql holds every SQL text of Cadence as files, and reads them: numbered
// migrations, named queries, and the statements of the services. It is pure: no
// connection, no clock, no goroutine.
//
// Invariants:
//
//   - Nothing is concatenated into a statement. What varies is bound by the server to
//     a {name:Type} placeholder.
//   - Each migration statement is idempotent (IF NOT EXISTS, OR REPLACE), because a
//     crash between a statement and its entry in schema_migrations repeats it, and
//     two services may migrate at once.
//   - A migration is never edited once applied: its checksum is stored.
package sql
