package safepath

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// where returns the kernel's path of an open file, and closes the file.
func where(t *testing.T, f *os.File) string {
	t.Helper()
	path, err := os.Readlink(descriptor(int(f.Fd())))
	must(t, err)
	must(t, f.Close())
	return path
}

func TestFollow(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "")
	write(t, filepath.Join(r.Path(), "a/b/file"), "")
	write(t, filepath.Join(r.Path(), "..data/file"), "")
	for link, target := range map[string]string{
		"in": "a", "a/up": "../a/b", "a/b/top": "../..", "chain": "in/b", "key": "..data/file",
		"out": outside, "a/out": "../../" + filepath.Base(outside), "root": "/", "self": r.Path() + "/a",
		"loop": "loop", "dangling": "nothing", "a/further": "../../../../../../../../../../..",
	} {
		must(t, os.Symlink(target, filepath.Join(r.Path(), link)))
	}
	for _, c := range []struct {
		name, at string
		want     error
	}{
		{".", ".", nil},
		{"a//b/./file", "a/b/file", nil},
		{"in", "a", nil},
		{"in/b/file", "a/b/file", nil},
		{"a/up/file", "a/b/file", nil},
		{"a/b/top/chain/file", "a/b/file", nil},
		{"key", "..data/file", nil},
		{"out", "", unix.EXDEV},
		{"out/file", "", unix.EXDEV},
		{"a/out", "", unix.EXDEV},
		{"root", "", unix.EXDEV},
		{"a/further", "", unix.EXDEV},
		{"self", "", unix.EXDEV},
		{"loop", "", unix.ELOOP},
		{"dangling", "", unix.ENOENT},
		{"a/b/file/x", "", unix.ENOTDIR},
		{"", "", ErrBadName},
		{"/a", "", ErrBadName},
		{"a/../a", "", ErrBadName},
		{"..", "", ErrBadName},
	} {
		f, err := r.Follow(c.name)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("Follow(%q): %v, want %v", c.name, err, c.want)
		}
		if f != nil {
			if got := where(t, f); got != filepath.Join(r.Path(), c.at) {
				t.Errorf("Follow(%q) is %s", c.name, got)
			}
		}
	}
}

// Absolute links are followed if the root is "/".
func TestFollowFromTheRootOfTheMachine(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/file"), "")
	must(t, os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "link")))
	r, err := OpenRoot("//")
	must(t, err)
	f, err := r.Follow(filepath.Join(dir, "link/file")[1:])
	must(t, err)
	if got := where(t, f); got != filepath.Join(dir, "a/file") {
		t.Errorf("it is %s", got)
	}
	must(t, r.Close())
}

func TestFollowMkdir(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	r := openTemp(t)
	outside := t.TempDir()
	must(t, os.Mkdir(filepath.Join(r.Path(), "a"), 0o700))
	write(t, filepath.Join(r.Path(), "file"), "")
	for link, target := range map[string]string{"in": "a", "out": outside, "dangling": "nothing", "up": "../" +
		filepath.Base(outside) + "/made"} {
		must(t, os.Symlink(target, filepath.Join(r.Path(), link)))
	}
	const mode = 0o777 | fs.ModeSetgid | fs.ModeSticky
	for name, at := range map[string]string{"a": "a", "in/x/y": "a/x/y", "b/c": "b/c", "file": "file"} {
		for range 2 {
			f, err := r.FollowMkdir(name, mode)
			must(t, err)
			if got := where(t, f); got != filepath.Join(r.Path(), at) {
				t.Errorf("FollowMkdir(%q) is %s", name, got)
			}
		}
	}
	for name, want := range map[string]fs.FileMode{"a": 0o700, "a/x": mode, "a/x/y": mode, "b": mode, "b/c": mode} {
		if info, err := r.Lstat(name); err != nil || info.Mode() != want|fs.ModeDir {
			t.Errorf("%s is %v, want %v; %v", name, info.Mode(), want, err)
		}
	}
	for name, want := range map[string]error{
		"out/x": unix.EXDEV, "up": unix.EXDEV, "up/x": unix.EXDEV, "file/x": unix.ENOTDIR, "../x": ErrBadName, "/x": ErrBadName,
	} {
		if _, err := r.FollowMkdir(name, mode); !errors.Is(err, want) {
			t.Errorf("FollowMkdir(%q): %v, want %v", name, err, want)
		}
	}
	// The missing target of a link is not created: the link could lead anywhere by then.
	if _, err := r.FollowMkdir("dangling/x", mode); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("through a link to nothing: %v", err)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
		t.Errorf("outside has %v, %v", names, err)
	}
}

// A bind shows the opened file and receives later mounts of its source. It propagates mounts to its source only with passOn.
// Detach keeps the mounts of others.
func TestBindAndDetach(t *testing.T) {
	r := openTemp(t)
	must(t, r.MkdirAll("source/sub", 0o755))
	must(t, r.MkdirAll("place", 0o755))
	write(t, filepath.Join(r.Path(), "source/file"), "text")
	at := func(name string) string { return filepath.Join(r.Path(), name) }
	bind(t, at("source"), at("source")) // a separate mount, so that it can be shared
	must(t, unix.Mount("", at("source"), "", unix.MS_SHARED, ""))

	for _, passOn := range []bool{false, true} {
		f, err := r.Follow("source")
		must(t, err)
		must(t, r.BindFrom(f.Fd(), "place", passOn))
		must(t, f.Close())
		if text, err := os.ReadFile(at("place/file")); err != nil || string(text) != "text" {
			t.Errorf("it holds %q, %v", text, err)
		}
		must(t, unix.Mount("tmpfs", at("source/sub"), "tmpfs", 0, "size=64k"))
		if is, err := r.IsMountPoint("place/sub"); err != nil || !is {
			t.Errorf("what is mounted later does not come through: %v", err)
		}
		must(t, unix.Mount("tmpfs", at("place/sub"), "tmpfs", 0, "size=64k"))
		write(t, at("place/sub/theirs"), "")
		if exists(t, at("source/sub/theirs")) != passOn {
			t.Errorf("passed on: %v, want %v", !passOn, passOn)
		}
		must(t, r.Detach("place"))
		if is, err := r.IsMountPoint("place"); err != nil || is {
			t.Errorf("it is still mounted, %v", err)
		}
		if is, err := r.IsMountPoint("source/sub"); err != nil || !is {
			t.Errorf("with it went what others had mounted; %v", err)
		}
		for unix.Unmount(at("source/sub"), 0) == nil {
		}
		if err := r.Detach("place"); !errors.Is(err, unix.EINVAL) {
			t.Errorf("detached again: %v", err)
		}
	}
}

// OpenFollowing reads only regular files on the root's own file system, regardless of links.
func TestOpenFollowing(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "outside")
	write(t, filepath.Join(r.Path(), "a/file"), "inside")
	must(t, r.MkdirAll("mounted", 0o755))
	must(t, unix.Mkfifo(filepath.Join(r.Path(), "pipe"), 0o600))
	for link, target := range map[string]string{"in": "a/file", "out": filepath.Join(outside, "file"), "away": "mounted/file",
		"fifo": "pipe"} {
		must(t, os.Symlink(target, filepath.Join(r.Path(), link)))
	}
	bind(t, outside, filepath.Join(r.Path(), "mounted"))
	for name, want := range map[string]error{
		"a/file": nil, "in": nil, "out": unix.EXDEV, "mounted/file": unix.EXDEV, "away": unix.EXDEV,
		"pipe": unix.EINVAL, "fifo": unix.EINVAL, "a": unix.EINVAL, "nothing": unix.ENOENT, "../file": ErrBadName,
	} {
		f, err := r.OpenFollowing(name)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err != nil {
			continue
		}
		text, err := io.ReadAll(f)
		if must(t, f.Close()); err != nil || string(text) != "inside" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// A hostile container swaps the file while it is opened. The checked file is the file that is read, and pipes do not block the
// call.
func TestOpenFollowingUnderSwaps(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "outside")
	for _, other := range []string{"pipe", "link"} {
		place := filepath.Join(r.Path(), other)
		write(t, filepath.Join(r.Path(), "file"), "inside")
		if other == "pipe" {
			must(t, unix.Mkfifo(place, 0o600))
		} else {
			must(t, os.Symlink(filepath.Join(outside, "file"), place))
		}
		done := swap(t, filepath.Join(r.Path(), "file"), place)
		for range swaps {
			f, err := r.OpenFollowing("file")
			if err != nil {
				continue
			}
			text, err := io.ReadAll(f)
			must(t, errors.Join(err, f.Close()))
			if string(text) != "inside" {
				t.Fatalf("read %q", text)
			}
		}
		done()
		must(t, os.RemoveAll(filepath.Join(r.Path(), "file")))
		must(t, os.RemoveAll(place))
	}
}
