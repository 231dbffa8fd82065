//go:build unix

package enginecore

import (
	"syscall"
	"time"
)

// processCPU is the processor time that this process has used, or 0.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
