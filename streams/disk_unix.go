//go:build unix

package streams

import "golang.org/x/sys/unix"

// freeBytes returns what is free on dir's disk.
func freeBytes(dir string) (uint64, bool) {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0, false
	}
	return fs.Bavail * uint64(fs.Bsize), true
}
