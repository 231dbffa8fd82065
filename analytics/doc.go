// Package analytics copies the event log into ClickHouse and reads it there.
//
//   - [Projector] copies the streams EVENTS and STEPS into tables, by itself exactly
//     once in effect.
//   - [Migrate] brings a database's schema up to date.
//   - [Querier] runs statements that read, and [Render] prints what they return.
//
// The SQL is in package analytics/sql, the embedded engine in analytics/clickhouse.
//
// # How a range lands
//
// Each stream has a pipeline, a goroutine that owns its state. It gathers messages into a
// range of sequences, and then
//
//	gathering ──full, or FlushInterval──► started ──► rows ──► dead letters ──► landed ──ack──► gathering
//	                                         │                                   │
//	          death, and another life:       └── the same range, cut where it    └── go on after it
//	                                             was, under the same tokens
//
// started and landed are rows of projector_positions, which alone decide where the next
// life goes on; acknowledgements and the consumer's state only show operators how far it
// is. A token names the life of the stream and the sequences of the rows, so that it can
// never mean other rows. Every insert is one block of one partition.
//
// Invariants, over the sequences that a stream holds, after any crash of any process:
// count() and uniqExact(seq) of a table equal the number of messages less those in the
// dead letters; a message is in the table or in the dead letters before the position
// passes it; memory is bounded while ClickHouse is away.
package analytics
