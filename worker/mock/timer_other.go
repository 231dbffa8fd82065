//go:build !linux

package mock

import "time"

// timer waits with the runtime's timers.
type timer struct{}

func (timer) open() error           { return nil }
func (timer) sleep(d time.Duration) { time.Sleep(d) }
func (timer) close() error          { return nil }
