//go:build !unix

package enginecore

import "time"

// processCPU is not known here.
func processCPU() time.Duration { return 0 }
