// Package process runs programs as child processes: it waits for what they say, keeps what they said, tells what
// CPU time they took, and stops or kills them.
//
// A child never outlives its parent (on Linux). A goroutine of each [Process] waits for its exit. All methods are safe
// for concurrent use.
package process
