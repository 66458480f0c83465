package safepath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// bind mounts source on target and undoes it when the test ends.
func bind(t *testing.T, source, target string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skipf("mounting is not allowed here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := unix.Unmount(target, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // already undone by the test
			t.Error(err)
		}
	})
}

func TestRemoveAllStopsAtMounts(t *testing.T) {
	for _, c := range []struct{ name, victim, target, remove, named string }{
		{"a folder inside", "", "pod/a/vol", "pod", "pod/a/vol"},
		{"a file inside", "keep", "pod/a/file", "pod", "pod/a/file"},
		{"the folder itself", "", "pod", "pod", "pod"},
		{"the folder it lies in", "", "pod", "pod/keep", "pod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := openTemp(t)
			outside := t.TempDir() // likely on the same file system, so that device numbers would not differ
			write(t, filepath.Join(outside, "keep"), "")
			write(t, filepath.Join(r.Path(), "pod/a/file"), "")
			must(t, r.MkdirAll("pod/a/vol", 0o755))
			bind(t, filepath.Join(outside, c.victim), filepath.Join(r.Path(), c.target))

			err := RemoveAllOneFilesystem(t.Context(), r, c.remove)
			var mounted *MountPointError
			if !errors.As(err, &mounted) || mounted.Path != filepath.Join(r.Path(), c.named) {
				t.Errorf("got %v, want a MountPointError about %s", err, c.named)
			}
			if !exists(t, filepath.Join(outside, "keep")) {
				t.Error("removed what is mounted")
			}
		})
	}
}

func TestRemoveAllOfADeepMount(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "keep"), "")
	deep := "pod"
	for range maxDepth + 5 {
		deep = filepath.Join(deep, "d")
	}
	must(t, r.MkdirAll(deep, 0o755))
	bind(t, outside, filepath.Join(r.Path(), deep))
	var mounted *MountPointError
	if err := RemoveAllOneFilesystem(t.Context(), r, "pod"); !errors.As(err, &mounted) {
		t.Fatalf("got %v, want a MountPointError", err)
	}
	// The mount was moved with its parent folder. The error names its new path.
	must(t, unix.Unmount(mounted.Path, unix.MNT_DETACH))
	if !exists(t, filepath.Join(outside, "keep")) {
		t.Error("removed what is mounted")
	}
}

func TestOpenAndMkdirCrossMounts(t *testing.T) {
	r := openTemp(t)
	must(t, r.MkdirAll("vol", 0o755))
	bind(t, t.TempDir(), filepath.Join(r.Path(), "vol"))
	must(t, r.MkdirAll("vol/a/b", 0o755))
	if _, err := r.Lstat("vol/a/b"); err != nil {
		t.Error(err)
	}
}

// The removal does not enter a mount that appears and disappears meanwhile.
func TestRemoveAllUnderMounts(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "keep"), "")
	target := filepath.Join(r.Path(), "pod/d")
	must(t, r.MkdirAll("pod/d", 0o755))
	bind(t, outside, target) // skips the test if mounting is not possible; undone below
	must(t, unix.Unmount(target, unix.MNT_DETACH))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if unix.Mount(outside, target, "", unix.MS_BIND, "") == nil {
				_ = unix.Unmount(target, unix.MNT_DETACH)
			}
		}
	})
	defer func() { cancel(); wg.Wait() }()
	for range swaps / 3 {
		if !exists(t, filepath.Join(outside, "keep")) {
			t.Fatal("removed what is mounted")
		}
		// The kernel returns EXDEV if a mount disappears while the path is resolved.
		if err := r.MkdirAll("pod/d", 0o755); err != nil && !errors.Is(err, unix.EXDEV) {
			t.Fatal(err)
		}
		// Depending on timing, the file is created in the folder or in the mount on it.
		if f, err := r.OpenBeneath("pod/d/file", unix.O_CREAT|unix.O_WRONLY, 0o644); err == nil {
			must(t, f.Close())
		}
		var mounted *MountPointError
		if err := RemoveAllOneFilesystem(t.Context(), r, "pod"); err != nil && !errors.As(err, &mounted) {
			t.Fatal(err)
		}
	}
}
