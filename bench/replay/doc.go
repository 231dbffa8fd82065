// Package replay makes a workload of what a pool has really been asked for: its requests in REQUESTS, at the times at which
// they were stored, with the token ids that they had, and answers as long as EVENTS says that they became.
package replay
