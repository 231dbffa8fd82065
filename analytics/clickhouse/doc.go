// Package clickhouse runs the analytics store of a single machine and opens
// connections to it or to an external server.
//
// # Embedded engine
//
// libchdb.so contains ClickHouse's own HTTP server. [Start] re-executes the
// current binary as a child process that loads the library (no cgo in this
// binary) and opens that server on loopback, so the embedded store is reached
// by the same clickhouse-go calls as a production server.
//
//	Start ──► starting ──authenticated query answered──► serving ──Stop──► stopped
//	             │                                         │
//	             └── exit, whatever its status: ErrStart   └── exit: ErrExited
//	                                                              │
//	                                Supervise: back-off, same port ┘
//
// Invariants:
//
//   - The child never outlives its parent: it ends when its standard input does,
//     which the kernel closes for a parent that was killed.
//   - One instance per data directory: an exclusive lock on a file in it is held
//     by an open file description that the child inherits, so the lock lives
//     exactly as long as the child, whatever happens to the parent.
//   - Only HTTP on 127.0.0.1 is served. The native listener of the library aborts
//     the process on a failed handshake; [Options.NativeTCP] opens it for tests.
//   - Nobody on the machine reads or writes without a password: the owner's exists
//     in memory only, the reader's in a file of mode 0600 ([Discover]). The
//     password-less default user, which the library itself needs in order to start,
//     may open listeners and nothing else.
//
// [MaybeChild] must be the first call of main and of TestMain in every binary that
// calls Start or Supervise.
//
// Owner goroutines: a [Server] is owned by the one that waits for its process; a
// [Supervisor] by its own loop. All exported methods are safe for concurrent use.
package clickhouse
