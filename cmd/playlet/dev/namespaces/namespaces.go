// Package namespaces sets up the namespaces of a program that runs containerd in isolation: it separates the mounts, makes
// cgroups that become the visible roots of their hierarchies, and is process 1. It serves `playlet dev` and the end-to-end
// tests, and imports nothing of the project.
package namespaces

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const plainMount = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// OwnMounts keeps the mounts of this process's new mount namespace private, and mounts the /proc of the new PID namespace. With
// unix.MS_SLAVE the machine's mounts and unmounts are propagated into it, with unix.MS_PRIVATE they are not.
func OwnMounts(propagation uintptr) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
		return fmt.Errorf("cutting off mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", plainMount, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

// ShareMounts makes all mounts shared within the namespace: a pod may ask for propagation.
func ShareMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	return nil
}

// Tmpfs covers a folder with an empty file system that forgets.
func Tmpfs(dir, mode string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+mode); err != nil {
		return fmt.Errorf("covering %s: %w", dir, err)
	}
	return nil
}

// RefuseMounts returns an error if anything is mounted on the folder or below: its removal would delete the mounted files too.
func RefuseMounts(dir string) error {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Mountpoint == dir || strings.HasPrefix(m.Mountpoint, dir+"/") {
			return fmt.Errorf("%s is not removed: something is mounted on %s", dir, m.Mountpoint)
		}
	}
	return nil
}

// OwnFolder returns an error unless the folder belongs to this user: another owner could choose the files to be removed.
func OwnFolder(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("the folder %s belongs to another user, who could make the agent remove other files", path)
	}
	return nil
}

// Below lists the folders below root, parents before children; none when there is no root.
func Below(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed while walking
		}
		if err == nil && d.IsDir() && path != root {
			dirs = append(dirs, path)
		}
		return err
	})
	return dirs, err
}
