package provenance

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// Machine is where something was measured.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"` // that this process may use
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel,omitempty"`
	Go     string `json:"go"`
	Load   string `json:"load,omitempty"` // the system's load averages over 1, 5 and 15 minutes, when it was asked
}

// ThisMachine returns the facts of the machine as it is now.
func ThisMachine() Machine {
	m := Machine{CPU: cpuid.CPU.BrandName, Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	// Elsewhere than on Linux neither file exists.
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(b)); len(f) >= 3 {
			m.Load = strings.Join(f[:3], " ")
		}
	}
	return m
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s/%s, %s", m.CPU, m.Cores, m.OS, m.Arch, m.Go)
}
