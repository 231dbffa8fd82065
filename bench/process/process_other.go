//go:build !linux

package process

import (
	"errors"
	"syscall"
	"time"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// CPU reads the CPU time that the process has used; only Linux tells.
func (p *Process) CPU() (CPU, error) { return CPU{}, errors.ErrUnsupported }

// MachineCPU reads the CPU time that the whole machine has used; only Linux tells.
func MachineCPU() (time.Duration, error) { return 0, errors.ErrUnsupported }
