package load

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

type timerfd struct {
	f  *os.File
	fd int
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: timerfd: %w", err)
	}
	return &timerfd{f: os.NewFile(uintptr(fd), "timerfd"), fd: fd}, nil
}

func (t *timerfd) close() { t.f.Close() } // nothing is buffered

func (t *timerfd) until(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("load: timerfd: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { t.f.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // read fails then too
	defer stop()
	var expirations [8]byte
	if _, err := t.f.Read(expirations[:]); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("load: timerfd: %w", err)
	}
	return nil
}
