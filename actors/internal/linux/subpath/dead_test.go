package subpath

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
)

// A bind of a dead file system is replaced, so that the container starts again when the volume is back.
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
			case <-time.After(time.Minute): // only a call that hangs takes so long
				s.Die()
				<-ended
				t.Fatal("UnbindAll hangs with the server")
			}
		})
	}
}
