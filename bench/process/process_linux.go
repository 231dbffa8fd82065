package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// attributes make the child die with its parent, and keep a terminal's signals from it: its parent stops it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// tick is the unit of /proc's CPU times; Linux shows 1/100 s to every program.
const tick = 10 * time.Millisecond

// CPU reads the CPU time that the process, which must be running, has used.
func (p *Process) CPU() (CPU, error) { return cpuOf(p.Pid()) }

func cpuOf(pid int) (CPU, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return CPU{}, fmt.Errorf("process: reading CPU times: %w", err)
	}
	// The second field is the name in brackets, which may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const utime = 14 - 3 // of the fields after the name, which is the second
	if len(fields) < utime+4 {
		return CPU{}, fmt.Errorf("process: /proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks [4]int64 // utime, stime, and those of waited-for children
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[utime+i], 10, 64); err != nil {
			return CPU{}, fmt.Errorf("process: /proc/%d/stat: %w", pid, err)
		}
	}
	c := CPU{Self: time.Duration(ticks[0]+ticks[1]) * tick, Children: time.Duration(ticks[2]+ticks[3]) * tick}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return CPU{}, fmt.Errorf("process: reading CPU times: %w", err)
	}
	for _, t := range tasks {
		list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread ended
		}
		if err != nil {
			return CPU{}, fmt.Errorf("process: reading CPU times: %w", err)
		}
		for _, f := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return CPU{}, fmt.Errorf("process: /proc/%d/task/%s/children: %w", pid, t.Name(), err)
			}
			if used, err := cpuOf(child); err == nil { // else it ended meanwhile
				c.Children += used.Self + used.Children
			}
		}
	}
	return c, nil
}

// MachineCPU reads the CPU time that the whole machine has used since it started: user, system, interrupts, and what a
// hypervisor gave to others.
func MachineCPU() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("process: reading CPU times: %w", err)
	}
	line, _, _ := bytes.Cut(stat, []byte{'\n'})
	fields := strings.Fields(string(line)) // cpu user nice system idle iowait irq softirq steal, then guests, counted in user
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("process: /proc/stat begins with %q", line)
	}
	var sum time.Duration
	for i, f := range fields[1:9] {
		if i == 3 || i == 4 { // idle, iowait
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process: /proc/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
