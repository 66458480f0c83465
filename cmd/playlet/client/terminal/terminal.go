// Package terminal takes the terminal over: every key as it is typed, and its size as it changes.
package terminal

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// MakeRaw has the terminal pass on every key as it is (cfmakeraw(3)); restore undoes that.
func MakeRaw(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("the terminal: %w", err)
	}
	raw := *was
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag &^= unix.CSIZE | unix.PARENB
	raw.Cflag |= unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("the terminal: %w", err)
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }, nil // it may be gone
}

// WatchSize sends the size of the terminal, at once and whenever it changes, until stop.
func WatchSize(ctx context.Context, f *os.File) (sizes <-chan api.Size, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	changed <- syscall.SIGWINCH
	out := make(chan api.Size)
	go func() {
		defer signal.Stop(changed)
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
			if err != nil || size.Col == 0 || size.Row == 0 {
				continue
			}
			select {
			case out <- api.Size{Width: size.Col, Height: size.Row}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, cancel
}
