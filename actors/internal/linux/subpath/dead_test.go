package subpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A volume whose file system has died, as one of FUSE does with its server: the bind that an earlier start left there goes, so
// that the container starts again when the volume is back, and the pod's end leaves nothing.
func TestADeadFileSystem(t *testing.T) {
	r := newRig(t)
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	place := filepath.Join(r.pod, Folder, "v", "c", "0")
	for range 2 {
		must(t, os.MkdirAll(place, 0o750))
		must(t, unix.Mount("dead", place, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())))
		must(t, server.Close())
		if _, err := os.Stat(place); !errors.Is(err, unix.ENOTCONN) {
			t.Fatalf("it is not dead: %v", err)
		}
		write(t, filepath.Join(r.volume, "part", "f"), "back")
		if text, err := os.ReadFile(filepath.Join(r.bind(r.part("part")), "f")); err != nil || string(text) != "back" {
			t.Errorf("bound is %q, %v", text, err)
		}
		must(t, unix.Unmount(place, 0))
		server, err = os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		must(t, err)
	}
	must(t, unix.Mount("dead", place, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())))
	must(t, server.Close())
	r.unbind()
}
