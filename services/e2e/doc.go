// Package e2e tests Cadence from outside: the built binary, as one process and as one process for each service, over
// real HTTP, NATS and ClickHouse. It has no code of its own.
//
// `make test` builds what is needed and sets the environment; see TestMain for what that is. CADENCE_TEST_BINARY names
// a binary that is built already. CADENCE_TEST_KILL_ROUNDS and CADENCE_TEST_LEDGER_ROUNDS set how often the tests that
// kill services do so.
package e2e
