package kinds

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(in("dir"), 0o700))
	write(t, in("file"))
	must(t, unix.Mkfifo(in("fifo"), 0o600))
	must(t, os.Symlink("dir", in("dirlink")))
	must(t, os.Symlink("nowhere", in("dangling")))
	socket, err := net.Listen("unix", in("socket"))
	must(t, err)
	defer func() { must(t, socket.Close()) }()

	for _, c := range []struct {
		kind v1.HostPathType
		path string
		why  string // part of the error; empty: none
	}{
		{v1.HostPathUnset, in("absent"), ""},
		{v1.HostPathUnset, in("dangling"), ""},
		{v1.HostPathDirectory, in("dir"), ""},
		{v1.HostPathDirectory, in("dirlink"), ""},
		{v1.HostPathDirectory, in("file"), "it is a file"},
		{v1.HostPathDirectory, in("absent"), "nothing is there"},
		{v1.HostPathDirectory, in("file/below"), "not a directory"},
		{v1.HostPathDirectoryOrCreate, in("dir"), ""},
		{v1.HostPathDirectoryOrCreate, in("dirlink/new/er"), ""},
		{v1.HostPathDirectoryOrCreate, in("new/a//b/"), ""},
		{v1.HostPathDirectoryOrCreate, in("file"), "it is a file"},
		{v1.HostPathDirectoryOrCreate, in("dangling"), "cannot be made"},
		{v1.HostPathFile, in("file"), ""},
		{v1.HostPathFile, in("dir"), "it is a directory"},
		{v1.HostPathFile, in("fifo"), "it is a named pipe"},
		{v1.HostPathFile, in("absent"), "nothing is there"},
		{v1.HostPathFileOrCreate, in("file"), ""},
		{v1.HostPathFileOrCreate, in("made"), ""},
		{v1.HostPathFileOrCreate, in("dir"), "it is a directory"},
		{v1.HostPathFileOrCreate, in("nofolder/file"), "cannot be made"},
		{v1.HostPathSocket, in("socket"), ""},
		{v1.HostPathSocket, in("file"), "it is a file"},
		{v1.HostPathSocket, in("absent"), "nothing is there"},
		{v1.HostPathCharDev, "/dev/null", ""},
		{v1.HostPathCharDev, in("socket"), "it is a socket"},
		{v1.HostPathBlockDev, "/dev/null", "it is a character device"},
		{v1.HostPathBlockDev, in("absent"), "nothing is there"},
	} {
		t.Run(string(c.kind)+"|"+strings.ReplaceAll(filepath.Base(c.path), "/", "|"), func(t *testing.T) {
			v := volumestest.HostPathVolume("v", c.path, c.kind)
			path, err := HostPath{}.Mount(t.Context(), Folder{Pod: &v1.Pod{}}, &v)
			switch {
			case c.why == "" && (err != nil || path != c.path):
				t.Errorf("got %q, %v", path, err)
			case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), c.path)):
				t.Errorf("got %v, want a reason with %q and the path", err, c.why)
			case c.why != "" && IsPermanent(err):
				t.Errorf("%v: the host may change, so it is worth another try", err)
			}
		})
	}
	for path, want := range map[string]os.FileMode{
		"new": os.ModeDir | 0o755, "new/a/b": os.ModeDir | 0o755, "dir/new/er": os.ModeDir | 0o755, "made": 0o644,
		"dir": os.ModeDir | 0o700,
	} {
		if got := mode(t, in(path)); got != want {
			t.Errorf("%s has %v, want %v", path, got, want)
		}
	}
	if exists(t, in("nowhere")) || exists(t, in("absent")) {
		t.Error("something was made that should not be")
	}
}

func TestHostPathBlockDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "block")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 77))); err != nil {
		t.Skipf("making a device node needs root: %v", err)
	}
	v := volumestest.HostPathVolume("v", path, v1.HostPathBlockDev)
	if _, err := (HostPath{}).Mount(t.Context(), Folder{Pod: &v1.Pod{}}, &v); err != nil {
		t.Error(err)
	}
	v = volumestest.HostPathVolume("v", path, v1.HostPathCharDev)
	if _, err := (HostPath{}).Mount(t.Context(), Folder{Pod: &v1.Pod{}}, &v); err == nil || !strings.Contains(err.Error(), "block device") {
		t.Errorf("got %v", err)
	}
}

func TestHostPathRefusesForGood(t *testing.T) {
	for _, v := range []v1.Volume{
		volumestest.HostPathVolume("v", "relative", v1.HostPathUnset),
		volumestest.HostPathVolume("v", "", v1.HostPathUnset),
		volumestest.HostPathVolume("v", "/a/../b", v1.HostPathUnset),
		volumestest.HostPathVolume("v", "/", "Moon"),
	} {
		if _, err := (HostPath{}).Mount(t.Context(), Folder{Pod: &v1.Pod{}}, &v); !IsPermanent(err) {
			t.Errorf("%s %q: got %v, want a permanent error", v.HostPath.Path, *v.HostPath.Type, err)
		}
	}
	v := volumestest.HostPathVolume("v", "/any/thing", v1.HostPathUnset)
	v.HostPath.Type = nil
	if path, err := (HostPath{}).Mount(t.Context(), Folder{Pod: &v1.Pod{}}, &v); err != nil || path != "/any/thing" {
		t.Errorf("without a type: %q, %v", path, err)
	}
}

func TestHostPath_HungServer(t *testing.T) {
	dir := t.TempDir()
	s := fusetest.Mount(t, dir)
	s.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	v := volumestest.HostPathVolume("v", dir, v1.HostPathDirectory)
	if _, err := (HostPath{}).Mount(ctx, Folder{Pod: &v1.Pod{}}, &v); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want that the file system does not answer", err)
	}
}
