//go:build linux || darwin

package modelfile

import "golang.org/x/sys/unix"

// freeBytes is how much an ordinary user can still write to dir's file system.
func freeBytes(dir string) (uint64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
