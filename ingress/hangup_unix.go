//go:build unix && !linux

package ingress

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the peer of a socket has closed it, at least for writing. It never waits and takes nothing from
// the socket. Behind bytes that nobody has read yet it does not see the end.
func hungUp(c syscall.RawConn) (gone bool) {
	err := c.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		again := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
		gone = (err == nil && n == 0) || (err != nil && !again)
	})
	return gone || err != nil // closed on this side
}
