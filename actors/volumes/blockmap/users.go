package blockmap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// Users lists the users of a device: file systems on it, devices over it (a volume group, a loop device), and processes that
// have it open, except those that are given. The client of a network block device serves the device and is no user of it. Users
// of a device that is gone are none. The owner has the calls to the device, which may hang.
func (d Device) Users(ctx context.Context, owner safepath.Owner, except ...int) (users []string, err error) {
	if !d.Exists() {
		return nil, nil
	}
	_, err = mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		if m.Major == int(d.Major) && m.Minor == int(d.Minor) {
			users = append(users, "the file system on "+m.Mountpoint)
		}
		return true, false
	})
	if err != nil {
		return nil, err
	}
	holders, err := os.ReadDir(d.sys("holders"))
	if kinds.IgnoreAbsent(err) != nil {
		return nil, err
	}
	for _, h := range holders {
		users = append(users, "device "+h.Name())
	}
	all, err := loops()
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if over, err := l.over(); err == nil && over == d {
			users = append(users, "loop device "+l.path)
		}
	}
	processes, err := d.processes(except)
	if users = append(users, processes...); err != nil || len(users) > 0 {
		return users, err
	}
	if d.isClaimed(ctx, owner) {
		users = append(users, "a mount or a device that is not visible here")
	}
	return users, nil
}

// isClaimed reports whether the device cannot be opened exclusively. It is false if the device does not answer: a dead device has
// no useful users.
func (d Device) isClaimed(ctx context.Context, owner safepath.Owner) bool {
	path := d.String()
	if is, err := At(path); err != nil || is != d {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	is, err := safepath.Bounded(ctx, owner, path, "open "+path, func() (bool, error) {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		return errors.Is(err, unix.EBUSY), nil
	})
	return err == nil && is
}

// processes lists the processes that have the device open, except this one and those that are given. Processes that end meanwhile
// have nothing open.
func (d Device) processes(others []int) (out []string, err error) {
	serving, _ := os.ReadFile(d.sys("pid")) // only network block devices have it
	except := []string{strconv.Itoa(os.Getpid()), string(bytes.TrimSpace(serving))}
	for _, pid := range others {
		except = append(except, strconv.Itoa(pid))
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil || slices.Contains(except, e.Name()) {
			continue
		}
		folder := filepath.Join("/proc", e.Name())
		if d.isOpenIn(filepath.Join(folder, "fd")) {
			name, _ := os.ReadFile(filepath.Join(folder, "comm")) // for the message only
			out = append(out, strings.TrimSpace(fmt.Sprintf("process %s %s", e.Name(), bytes.TrimSpace(name))))
		}
	}
	return out, nil
}

// isOpenIn reports whether the folder with a process's descriptors has the device.
func (d Device) isOpenIn(folder string) bool {
	open, err := os.ReadDir(folder)
	return err == nil && slices.ContainsFunc(open, func(fd os.DirEntry) bool {
		path := filepath.Join(folder, fd.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/") { // a socket or a pipe
			return false
		}
		st, err := stat(path)
		return err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev_major == d.Major && st.Rdev_minor == d.Minor
	})
}
