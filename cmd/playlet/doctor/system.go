package doctor

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel is the machine's own System.
type Kernel struct{}

// Disk implements System.
func (Kernel) Disk(path string) (Disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return Disk{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := uint64(fs.Bsize) //nolint:gosec // a size
	return Disk{Size: fs.Blocks * block, Free: fs.Bavail * block, Inodes: fs.Files, InodesFree: fs.Ffree, Type: fs.Type}, nil
}

// Writable implements System.
func (Kernel) Writable(path string) error {
	if err := unix.Access(path, unix.W_OK); err != nil {
		return &os.PathError{Op: "writing to", Path: path, Err: err}
	}
	return nil
}

// Clocks implements System.
func (Kernel) Clocks() (wall time.Time, monotonic time.Duration) {
	var w, m unix.Timespec
	// These two clocks are always there: clock_gettime(2).
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &w)
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &m)
	return time.Unix(w.Unix()), time.Duration(m.Nano())
}

// Synchronised implements System.
func (Kernel) Synchronised() (bool, error) {
	var t unix.Timex // no modes: nothing is set
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, err
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, nil
}

// Tmpfs implements System, with a file system that is mounted nowhere and gone when its descriptor is closed.
func (Kernel) Tmpfs() (noswap bool, err error) {
	if err := detachedTmpfs("noswap"); err == nil {
		return true, nil
	}
	return false, detachedTmpfs("")
}

func detachedTmpfs(option string) (err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fs)) }()
	if option != "" {
		if err := unix.FsconfigSetFlag(fs, option); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return err
	}
	return unix.Close(mount)
}

// Openat2 implements System.
func (Kernel) Openat2(dir string) error {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f, err := unix.Openat2(root, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err == nil {
		err = unix.Close(f)
	}
	return errors.Join(err, unix.Close(root))
}
