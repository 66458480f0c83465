package subpath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// rig is a pod's folder with one volume in it.
type rig struct {
	testing.TB
	pod, volume, outside string
}

func newRig(t testing.TB) rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	base := t.TempDir()
	r := rig{t, filepath.Join(base, "pod"), filepath.Join(base, "pod/volumes/kind/v"), filepath.Join(base, "outside")}
	must(t, os.MkdirAll(r.volume, 0o755))
	must(t, os.Mkdir(r.outside, 0o755))
	probe := filepath.Join(base, "probe")
	must(t, os.Mkdir(probe, 0o755))
	if err := unix.Mount(r.volume, probe, "", unix.MS_BIND, ""); errors.Is(err, unix.EPERM) {
		t.Skipf("mounting is not allowed here: %v", err)
	} else {
		must(t, errors.Join(err, unix.Unmount(probe, 0)))
	}
	t.Cleanup(func() {
		for range r.mounts() {
			for _, m := range r.mounts() {
				_ = unix.Unmount(m, unix.MNT_DETACH) // a test that ended early left it
			}
		}
	})
	return r
}

func (r rig) part(path string) Part {
	return Part{Pod: r.pod, From: r.volume, Volume: "v", Container: "c", Path: path}
}

// mounts returns the mount points in the pod's folder. A place with stacked mounts is listed once per mount.
func (r rig) mounts() (out []string) {
	r.Helper()
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(r.pod))
	must(r, err)
	for _, m := range all {
		out = append(out, m.Mountpoint)
	}
	return out
}

func (r rig) unbind() {
	r.Helper()
	pod, err := safepath.OpenRoot(r.pod)
	must(r, err)
	must(r, UnbindAll(pod))
	must(r, pod.Close())
	if left := r.mounts(); len(left) > 0 {
		r.Errorf("still mounted: %v", left)
	}
	if _, err := os.Lstat(filepath.Join(r.pod, Folder)); !errors.Is(err, fs.ErrNotExist) {
		r.Errorf("the folder is still there: %v", err)
	}
}

func (r rig) bind(p Part) string {
	r.Helper()
	place, err := Bind(r.Context(), p)
	must(r, err)
	return place
}

func TestBind(t *testing.T) {
	r := newRig(t)
	write(t, filepath.Join(r.volume, "dir/file"), "text")
	must(t, os.Symlink("dir", filepath.Join(r.volume, "link")))
	must(t, unix.Mkfifo(filepath.Join(r.volume, "fifo"), 0o600))
	must(t, os.Chmod(r.volume, 0o771|fs.ModeSetgid))
	for i, c := range []struct{ path, file string }{{"dir", "/file"}, {"dir/file", ""}, {"link", "/file"}, {"link/file", ""},
		{".", "/dir/file"}} {
		p := r.part(c.path)
		p.Index = i
		place := r.bind(p)
		if want := filepath.Join(r.pod, "volume-subpaths/v/c", string(rune('0'+i))); place != want || place != p.Place() {
			t.Errorf("it is at %s, want %s", place, want)
		}
		if text, err := os.ReadFile(place + c.file); err != nil || string(text) != "text" {
			t.Errorf("%s holds %q, %v", c.path, text, err)
		}
	}
	p := r.part("new/folder")
	p.Index = 8
	place := r.bind(p)
	for _, path := range []string{place, filepath.Join(r.volume, "new"), filepath.Join(r.volume, "new/folder")} {
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o771|fs.ModeSetgid|fs.ModeDir {
			t.Errorf("%s has the mode %v, not that of the volume, %v", path, info.Mode(), err)
		}
	}
	p = r.part("fifo")
	p.Index = 9
	if info, err := os.Stat(r.bind(p)); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("the FIFO is %v, %v", info.Mode(), err)
	}
	if n := len(r.mounts()); n != 7 {
		t.Errorf("%d mounts", n)
	}
	for _, path := range []string{filepath.Join(r.pod, Folder), filepath.Join(r.pod, Folder, "v/c")} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	r.unbind()
	r.unbind() // missing binds are not an error
	if text, err := os.ReadFile(filepath.Join(r.volume, "dir/file")); err != nil || string(text) != "text" {
		t.Errorf("afterwards the volume holds %q, %v", text, err)
	}
}

// An existing bind is kept and remains a single mount. Other mounts on the place are removed.
func TestBindAgain(t *testing.T) {
	r := newRig(t)
	write(t, filepath.Join(r.volume, "file"), "one")
	write(t, filepath.Join(r.volume, "dir/file"), "in dir")
	// A mount in the bind disappears if the bind is replaced.
	must(t, os.MkdirAll(filepath.Join(r.volume, "dir/sub"), 0o755))
	place := r.bind(r.part("dir"))
	must(t, unix.Mount("tmpfs", filepath.Join(place, "sub"), "tmpfs", 0, "size=64k"))
	r.bind(r.part("dir"))
	if n := len(r.mounts()); n != 2 {
		t.Errorf("it was bound again; %d mounts", n)
	}
	r.bind(r.part("file"))
	// Like an update of a ConfigMap, replace the bound file with another file of the same name.
	write(t, filepath.Join(r.volume, "new"), "two")
	must(t, os.Rename(filepath.Join(r.volume, "new"), filepath.Join(r.volume, "file")))
	r.bind(r.part("file"))
	if text, err := os.ReadFile(place); err != nil || string(text) != "two" || len(r.mounts()) != 1 {
		t.Errorf("it holds %q, %v; mounted are %v", text, err, r.mounts())
	}
	// The place of a file is reused for a folder and vice versa, even if an agent ended before it mounted.
	for _, mounted := range []bool{true, false} {
		for path, file := range map[string]string{"dir": "/file", "dir/file": ""} {
			if text, err := os.ReadFile(r.bind(r.part(path)) + file); err != nil || string(text) != "in dir" ||
				len(r.mounts()) != 1 {
				t.Errorf("%s: %q, %v; mounted are %v", path, text, err, r.mounts())
			}
			if !mounted {
				must(t, unix.Unmount(place, 0))
			}
		}
	}
	// Two mounts on one place, as two agents might leave them.
	r.bind(r.part("file"))
	must(t, unix.Mount(filepath.Join(r.volume, "dir/file"), place, "", unix.MS_BIND, ""))
	r.bind(r.part("file"))
	if text, err := os.ReadFile(place); err != nil || string(text) != "two" || len(r.mounts()) != 1 {
		t.Errorf("it holds %q, %v; mounted are %v", text, err, r.mounts())
	}
	must(t, unix.Mount(filepath.Join(r.volume, "dir/file"), place, "", unix.MS_BIND, ""))
	r.unbind()
}

func TestBindRefuses(t *testing.T) {
	r := newRig(t)
	write(t, filepath.Join(r.volume, "file"), "")
	write(t, filepath.Join(r.outside, "file"), "")
	for link, target := range map[string]string{"out": r.outside, "root": "/", "up": "../../../../outside", "loop": "loop",
		"dangling": "nothing"} {
		must(t, os.Symlink(target, filepath.Join(r.volume, link)))
	}
	for path, why := range map[string]string{
		"out": "leads out", "out/file": "leads out", "root": "leads out", "up": "leads out", "up/new": "leads out",
		"loop":     "symbolic links",
		"dangling": "", "file/below": "no folder", "../x": "plain relative path", "/x": "plain relative path",
		"a/../../x": "plain relative path",
	} {
		_, err := Bind(t.Context(), r.part(path))
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), path) ||
			strings.Contains(err.Error(), r.outside) {
			t.Errorf("%s: %v, want %q", path, err, why)
		}
	}
	p := r.part("x")
	p.From += "/file"
	if _, err := Bind(t.Context(), p); err == nil || !strings.Contains(err.Error(), "the volume is a file") {
		t.Errorf("a part of a file: %v", err)
	}
	p.From += "2"
	if _, err := Bind(t.Context(), p); err == nil || !strings.Contains(err.Error(), "the volume is not there") {
		t.Errorf("a part of nothing: %v", err)
	}
	for _, name := range []string{"", "..", "a/b"} {
		for _, p := range []Part{{Volume: name, Container: "c"}, {Volume: "v", Container: name}} {
			p.Pod, p.From, p.Path = r.pod, r.volume, "."
			if _, err := Bind(t.Context(), p); !errors.Is(err, safepath.ErrBadName) {
				t.Errorf("%+v: %v", p, err)
			}
		}
	}
	if got := r.mounts(); len(got) > 0 {
		t.Errorf("mounted are %v", got)
	}
	if names, err := os.ReadDir(r.outside); err != nil || len(names) != 1 {
		t.Errorf("outside has %v, %v", names, err)
	}
	if _, err := os.Lstat(filepath.Join(r.volume, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is missing was made: %v", err)
	}
}

// UnbindAll does not cross mounts of others among the binds.
func TestUnbindStopsAtOthersMounts(t *testing.T) {
	r := newRig(t)
	r.bind(r.part("dir"))
	theirs := filepath.Join(r.pod, Folder, "theirs")
	must(t, os.Mkdir(theirs, 0o755))
	write(t, filepath.Join(r.outside, "keep"), "")
	must(t, unix.Mount(r.outside, theirs, "", unix.MS_BIND, ""))
	pod, err := safepath.OpenRoot(r.pod)
	must(t, err)
	var mounted *safepath.MountPointError
	if err := UnbindAll(pod); !errors.As(err, &mounted) || mounted.Path != theirs {
		t.Errorf("got %v", err)
	}
	must(t, pod.Close())
	if _, err := os.Lstat(filepath.Join(r.outside, "keep")); err != nil || len(r.mounts()) != 1 {
		t.Errorf("%v; mounted are %v", err, r.mounts())
	}
	must(t, unix.Unmount(theirs, 0))
	r.unbind()
}

// If others undo a bind, the container may write to the plain mount point. The data and its parent folders are kept.
func TestUnbindKeepsData(t *testing.T) {
	for name, data := range map[string]string{"dir": "precious", "file": ""} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			write(t, filepath.Join(r.volume, "file"), "in the volume")
			place := r.bind(r.part(name))
			must(t, unix.Unmount(place, unix.MNT_DETACH))
			written := filepath.Join(place, data)
			must(t, os.WriteFile(written, []byte("data"), 0o600))
			pod, err := safepath.OpenRoot(r.pod)
			must(t, err)
			var kept *safepath.NotEmptyError
			if err := UnbindAll(pod); !errors.As(err, &kept) || kept.Path != place {
				t.Errorf("UnbindAll returned %v, want an error about %s", err, place)
			}
			must(t, pod.Close())
			if text, err := os.ReadFile(written); string(text) != "data" {
				t.Errorf("the data is %q, %v", text, err)
			}
			must(t, os.Remove(written))
			r.unbind()
		})
	}
}

// UnbindAll undoes the other binds if a folder cannot be read.
func TestUnbindGoesOnAfterAnUnreadableFolder(t *testing.T) {
	r := newRig(t)
	r.bind(r.part("dir"))
	link := filepath.Join(r.pod, Folder, "aaa")
	must(t, os.Symlink("/", link))
	pod, err := safepath.OpenRoot(r.pod)
	must(t, err)
	if err := UnbindAll(pod); err == nil || len(r.mounts()) > 0 {
		t.Errorf("got %v, mounted are %v, want an error and no mount", err, r.mounts())
	}
	must(t, pod.Close())
	must(t, os.Remove(link))
	r.unbind()
}
