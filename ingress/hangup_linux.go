package ingress

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the peer of a socket has closed it, at least for writing. It never waits, takes nothing from
// the socket, and sees the end behind bytes that nobody has read yet (a pipelined request, TLS's close_notify).
func hungUp(c syscall.RawConn) (gone bool) {
	// Control and not Read: Read would wait for the connection's reader and fail after its deadline.
	err := c.Control(func(fd uintptr) {
		p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for {
			n, err := unix.Poll(p[:], 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			gone = n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
			return
		}
	})
	return gone || err != nil // closed on this side
}
