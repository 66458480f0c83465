// Package terminal takes the terminal over: every key as it is typed, and its size as it changes.
package terminal

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// MakeRaw has the terminal pass on every key as it is (cfmakeraw(3)); restore undoes that.
func MakeRaw(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	was, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("the terminal: %w", err)
	}
	return func() { _ = term.Restore(fd, was) }, nil // it may be gone
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
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil || width == 0 || height == 0 {
				continue
			}
			select {
			case out <- api.Size{Width: uint16(width), Height: uint16(height)}: //nolint:gosec // the kernel's have 16 bits
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, cancel
}
