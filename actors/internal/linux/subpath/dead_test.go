package subpath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// A bind of a dead file system is replaced, so that the container can start again once the volume is available.
func TestBind_ReplacesADeadFileSystem(t *testing.T) {
	r := newRig(t)
	place := filepath.Join(r.pod, Folder, "v", "c", "0")
	must(t, os.MkdirAll(place, 0o750))
	for range 2 {
		fusetest.Mount(t, place).Die()
		write(t, filepath.Join(r.volume, "part", "f"), "back")
		if text, err := os.ReadFile(filepath.Join(r.bind(r.part("part")), "f")); err != nil || string(text) != "back" {
			t.Errorf("bound is %q, %v", text, err)
		}
		must(t, unix.Unmount(place, 0))
	}
}

func TestUnbindAll_DeadAndHungServers(t *testing.T) {
	for name, end := range map[string]func(*fusetest.Server){"dead": (*fusetest.Server).Die, "hung": (*fusetest.Server).Hang} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := fusetest.Mount(t, r.outside)
			for _, index := range []string{"0", "1"} {
				place := filepath.Join(r.pod, Folder, "v", "c", index)
				must(t, os.MkdirAll(place, 0o750))
				must(t, unix.Mount(r.outside, place, "", unix.MS_BIND, ""))
			}
			end(s)
			ended := make(chan struct{})
			go func() { defer close(ended); r.unbind() }()
			select {
			case <-ended:
			case <-time.After(5 * time.Minute): // only a call that hangs takes so long
				s.Die()
				<-ended
				t.Fatal("UnbindAll hangs with the server")
			}
		})
	}
}

// lateContext ends after the given number of calls of Err.
type lateContext struct {
	context.Context
	questions int
}

func (c *lateContext) Err() error {
	if c.questions--; c.questions < 0 {
		return context.Canceled
	}
	return nil
}

// If the server answers after the caller has left, the bind is not made or is undone.
func TestBind_LeavesNothingAfterItsCallerIsGone(t *testing.T) {
	r := newRig(t)
	s := fusetest.Mount(t, r.outside)
	s.Hang()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	p := r.part(fusetest.Folder)
	p.From = r.outside
	go func() {
		_, err := Bind(ctx, p)
		ended <- err
	}()
	for s.Requests() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	s.Resume()
	if err := <-ended; !errors.Is(err, errLate) {
		t.Errorf("after the server woke: got %v, want %v", err, errLate)
	}
	for questions := range 4 { // at any later moment
		place, err := Bind(&lateContext{t.Context(), questions}, p)
		pod, openErr := safepath.OpenRoot(r.pod)
		must(t, openErr)
		is, isErr := pod.IsMountPoint(p.place())
		must(t, pod.Close())
		switch late := questions < 3; {
		case late != errors.Is(err, errLate), late && is, !late && (err != nil || !is || place != p.Place()):
			t.Errorf("the caller is gone at question %d: got %q, %v, mounted %t, %v", questions, place, err, is, isErr)
		}
	}
}
