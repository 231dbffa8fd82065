package mock

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer is a kernel timer that the runtime's poller waits for: the poller's own time-outs are whole milliseconds.
type timer struct {
	file *os.File
	fd   int
	buf  [8]byte
}

func (t *timer) open() error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	t.fd, t.file = fd, os.NewFile(uintptr(fd), "timerfd")
	return nil
}

func (t *timer) sleep(d time.Duration) {
	if t.file == nil {
		time.Sleep(d)
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if unix.TimerfdSettime(t.fd, 0, &spec, nil) != nil {
		time.Sleep(d)
		return
	}
	for expired := false; !expired; {
		_, err := t.file.Read(t.buf[:])
		expired = err == nil || !errors.Is(err, unix.EINTR)
	}
}

func (t *timer) close() error {
	if t.file == nil {
		return nil
	}
	if err := t.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
