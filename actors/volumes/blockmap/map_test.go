package blockmap_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openTemp(t *testing.T) *safepath.Root {
	t.Helper()
	root, err := safepath.OpenRoot(t.TempDir())
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	t.Cleanup(func() { volumestest.UnmountBelow(t, root.Path()) })
	return root
}

// wantMap checks that a device is mapped, and held by one loop device.
func wantMap(t *testing.T, path, device string) {
	t.Helper()
	got, err := blockmap.At(path)
	want, wantErr := blockmap.At(device)
	if errors.Join(err, wantErr) != nil || got != want {
		t.Errorf("mapped is %v (%v), want %v (%v)", got, err, want, wantErr)
	}
	if loops := volumestest.LoopsOver(t, path); len(loops) != 1 {
		t.Errorf("held by %v, want one loop device", loops)
	}
}

// A map is made from each state that a killed agent or a kubelet leaves, and undone to nothing, twice each.
func TestMap_FromEachState(t *testing.T) {
	for name, state := range map[string]func(t *testing.T, path, device string){
		"nothing": nil,
		"empty file": func(t *testing.T, path, _ string) {
			must(t, os.WriteFile(path, nil, 0o600))
		},
		"bound": func(t *testing.T, path, device string) {
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, unix.Mount(device, path, "", unix.MS_BIND, ""))
		},
		"held by a kubelet": func(t *testing.T, path, device string) {
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, unix.Mount(device, path, "", unix.MS_BIND, ""))
			_, err := volumestest.Losetup("-f", path)
			must(t, err)
		},
		"another device": func(t *testing.T, path, _ string) {
			other, _ := volumestest.LoopDevice(t)
			root, err := safepath.OpenRoot(filepath.Dir(path))
			must(t, errors.Join(err, blockmap.Map(root, filepath.Base(path), other), root.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			device, _ := volumestest.LoopDevice(t)
			root := openTemp(t)
			path := filepath.Join(root.Path(), "uid")
			if state != nil {
				state(t, path, device)
			}
			for range 2 {
				must(t, blockmap.Map(root, "uid", device))
				wantMap(t, path, device)
			}
			for range 2 {
				must(t, blockmap.Unmap(root, "uid"))
				if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("after the unmap: %v", err)
				}
			}
		})
	}
}

func TestMap_Refusals(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	root := openTemp(t)
	must(t, os.WriteFile(filepath.Join(root.Path(), "data"), []byte("precious"), 0o600))
	if err := blockmap.Map(root, "uid", filepath.Join(root.Path(), "data")); !errors.Is(err, blockmap.ErrNoDevice) {
		t.Errorf("a file: %v", err)
	}
	if err := blockmap.Map(root, "uid", filepath.Join(root.Path(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	var kept *safepath.NotEmptyError
	if err := errors.Join(blockmap.Map(root, "data", device), blockmap.Unmap(root, "data")); !errors.As(err, &kept) {
		t.Errorf("data in place of the map: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(root.Path(), "data")); err != nil || string(data) != "precious" {
		t.Errorf("the data is %q (%v)", data, err)
	}
}

// A map that is open stays until it is closed.
func TestUnmap_Open(t *testing.T) {
	device, _ := volumestest.LoopDevice(t)
	root := openTemp(t)
	must(t, blockmap.Map(root, "uid", device))
	f, err := os.Open(filepath.Join(root.Path(), "uid"))
	must(t, err)
	if err := blockmap.Unmap(root, "uid"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want that it is busy", err)
	}
	must(t, f.Close())
	must(t, blockmap.Unmap(root, "uid"))
}

// Each user of a device is listed, and none once it has ended.
func TestUsers(t *testing.T) {
	for name, c := range map[string]struct {
		use  func(t *testing.T, device string) (end func())
		want string
	}{
		"nobody": {},
		"process": {func(t *testing.T, device string) func() {
			f, err := os.Open(device)
			must(t, err)
			sleep := exec.Command("sleep", "1000")
			sleep.Stdin = f
			must(t, sleep.Start())
			must(t, f.Close())
			return func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }
		}, "process "},
		"loop device": {func(t *testing.T, device string) func() {
			loop, err := volumestest.Losetup("--find", "--show", device)
			must(t, err)
			return func() { _, err := volumestest.Losetup("-d", loop); must(t, err) }
		}, "loop device /dev/loop"},
		"claim": {func(t *testing.T, device string) func() { // as by a mount in another namespace
			fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
			must(t, err)
			return func() { must(t, unix.Close(fd)) }
		}, "not visible here"},
		"file system": {func(t *testing.T, device string) func() {
			if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
				t.Skipf("no mkfs.ext4: %v: %s", err, out)
			}
			at := t.TempDir()
			must(t, unix.Mount(device, at, "ext4", 0, ""))
			return func() { must(t, unix.Unmount(at, 0)) }
		}, "the file system on /"},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := volumestest.LoopDevice(t)
			device, err := blockmap.At(path)
			must(t, err)
			users := func() string {
				got, err := device.Users(t.Context(), safepath.Owner{Pod: "a"})
				must(t, err)
				return strings.Join(got, ", ")
			}
			if c.use != nil {
				end := c.use(t, path)
				if got := users(); !strings.Contains(got, c.want) {
					t.Errorf("users %q, want %q", got, c.want)
				}
				end()
			}
			if got := users(); got != "" {
				t.Errorf("users %q, want none", got)
			}
		})
	}
}

// A device that is gone has no users, although another has its number by now.
func TestUsers_OfAnEarlierDevice(t *testing.T) {
	path, _ := volumestest.LoopDevice(t)
	device, err := blockmap.At(path)
	must(t, err)
	if device.Sequence == "" {
		t.Skip("no diskseq: Linux 5.15 has it")
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { must(t, unix.Close(fd)) }()
	was := device
	was.Sequence = "0"
	for d, want := range map[blockmap.Device]bool{device: true, was: false} {
		if got, err := d.Users(t.Context(), safepath.Owner{Pod: "a"}); err != nil || (len(got) > 0) != want {
			t.Errorf("users of %+v: %v, %v", d, got, err)
		}
	}
	if device.String() != path {
		t.Errorf("its name is %s, want %s", device, path)
	}
}

// A process that is given is no user of a device, e.g. that of a driver which keeps it open.
func TestUsers_ExceptADriver(t *testing.T) {
	path, _ := volumestest.LoopDevice(t)
	device, err := blockmap.At(path)
	must(t, err)
	f, err := os.Open(path)
	must(t, err)
	driver := exec.Command("sleep", "1000")
	driver.Stdin = f
	must(t, errors.Join(driver.Start(), f.Close()))
	defer func() { _ = driver.Process.Kill(); _ = driver.Wait() }()
	name := fmt.Sprintf("process %d ", driver.Process.Pid)
	for pid, want := range map[int]bool{driver.Process.Pid: false, driver.Process.Pid + 1: true, 0: true} {
		got, err := device.Users(t.Context(), safepath.Owner{Pod: "a"}, pid)
		if is := strings.Contains(strings.Join(got, ", "), name); err != nil || is != want {
			t.Errorf("users except %d: %v (%v), want the driver: %v", pid, got, err, want)
		}
	}
}
