package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// MountDisk mounts a file system of so many mebibytes that is empty at a folder. It lies in the file image, on a loop device that the
// kernel gives back with the mount. options are mkfs.ext4's.
func MountDisk(image, at string, mebibytes int64, options ...string) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(mebibytes<<20), f.Close()); err != nil {
		return err
	}
	for _, words := range [][]string{
		append(append([]string{"mkfs.ext4", "-q", "-m", "0"}, options...), image),
		{"mount", "-o", "loop", image, at},
	} {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", words, err, out)
		}
	}
	return nil
}

// UnmountDisk undoes MountDisk, at the latest when nothing is open there any more.
func UnmountDisk(at string) error { return syscall.Unmount(at, syscall.MNT_DETACH) }

// Fill takes so many bytes of the file system that path is to be on, all at once.
func Fill(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, bytes), f.Close())
}

// UseInodes makes so many empty files in a folder.
func UseInodes(dir string, files int) error {
	for i := range files {
		f, err := os.Create(dir + "/" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// mountRoot gives the runtime a file system of its own for what it keeps, where one was asked for.
func (s *Stack) mountRoot() error {
	if s.diskMiB == 0 {
		return nil
	}
	if err := os.Mkdir(s.root(), 0o711); err != nil {
		return err
	}
	return MountDisk(s.root()+".disk", s.root(), s.diskMiB)
}

func (s *Stack) unmountRoot() error {
	err := UnmountDisk(s.root())
	if s.diskMiB == 0 || errors.Is(err, syscall.EINVAL) || errors.Is(err, os.ErrNotExist) { // it was never mounted
		return nil
	}
	return err
}
