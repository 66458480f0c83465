package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// space is an amount of free space of a file system. Inodes is meaningless if the file system has no fixed number of them.
type space struct {
	bytes, inodes uint64
	fixed         bool // the number of inodes is fixed
}

// needed is the free space that a run takes: for images, for the runtime's data and the logs of a few small pods, and leftFree.
var needed = space{bytes: 256 << 20, inodes: 4000}

// enoughSpace returns an error unless the file system of the folder, which may not exist yet, has the free space for a run.
// Without it, containerd or a pod would fail later, in many ways.
func enoughSpace(dir string, free func(path string) (space, error)) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	at := dir
	info, err := os.Stat(at)
	for ; errors.Is(err, fs.ErrNotExist) && at != "/"; info, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	if err == nil && !info.IsDir() {
		return nil // the run names it as no folder
	}
	const remedy = "free some space there, or name a folder on another disk with --dir"
	switch now, err := free(at); {
	case err != nil:
		return &os.PathError{Op: "statfs", Path: at, Err: err}
	case now.bytes < needed.bytes:
		return fmt.Errorf("the disk of %s has %d MiB free, and playlet dev takes %d MiB: %s", dir, now.bytes>>20,
			needed.bytes>>20, remedy)
	case now.fixed && now.inodes < needed.inodes:
		return fmt.Errorf("the disk of %s has %d inodes free, and playlet dev takes %d: %s", dir, now.inodes, needed.inodes,
			remedy)
	}
	return nil
}

// freeSpace asks the kernel, statfs(2).
func freeSpace(path string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return space{}, err
	}
	return space{bytes: s.Bavail * uint64(s.Bsize), inodes: s.Ffree, fixed: s.Files > 0}, nil //nolint:gosec // a size
}
