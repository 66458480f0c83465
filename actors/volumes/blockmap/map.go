// Package blockmap maps block devices in the way of a kubelet, and finds the users of a device. It has no actor and no state:
// the disk and the kernel have both.
//
// A map is an empty file on which the node of a device is bound. A loop device over it keeps the device open, so that the kernel
// gives its number to no other device while containers know it by that number. Both outlive the agent. A kubelet finds the loop
// device by the path of its backing file, and so does this package: either undoes the maps of the other.
package blockmap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// Device identifies a block device until the machine is restarted.
type Device struct {
	Major, Minor uint32
	// Sequence is the kernel's number of the disk (diskseq, Linux 5.15), which no other disk gets; empty: unknown.
	Sequence string
}

// String returns the name of the device in /dev, or its number if it has none.
func (d Device) String() string {
	if name := d.property("DEVNAME"); name != "" {
		return filepath.Join("/dev", name)
	}
	return d.number()
}

func (d Device) number() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// sys returns the path of a file about the device.
func (d Device) sys(name string) string { return filepath.Join("/sys/dev/block", d.number(), name) }

// property returns a property of the device's events; empty: it has none.
func (d Device) property(key string) string {
	text, _ := os.ReadFile(d.sys("uevent")) // the device may be gone
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), key+"="); is {
			return value
		}
	}
	return ""
}

// Exists reports whether the device exists, as opposed to another device that has its number by now.
func (d Device) Exists() bool {
	if _, err := os.Stat(d.sys("")); err != nil {
		return false
	}
	now := numbered(d.Major, d.Minor)
	return d.Sequence == "" || now.Sequence == "" || now == d
}

func numbered(major, minor uint32) Device {
	d := Device{Major: major, Minor: minor}
	d.Sequence = d.property("DISKSEQ")
	return d
}

// ErrNoDevice is the error about a file that is no block device.
var ErrNoDevice = errors.New("it is no block device")

// At returns the device at a path, after links. It calls no server and does not open the device. A missing file is an error that
// wraps fs.ErrNotExist, and any other file one that wraps ErrNoDevice.
func At(path string) (Device, error) {
	st, err := stat(path)
	switch {
	case err != nil:
		return Device{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFBLK:
		return Device{}, fmt.Errorf("%s: %w", path, ErrNoDevice)
	}
	return numbered(st.Rdev_major, st.Rdev_minor), nil
}

func stat(path string) (st unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return st, err
}

// Map binds the device at the path source, after links, on the file with this name, and holds it by a loop device. It may be
// repeated after an interruption at any point. A map of another device is replaced.
func Map(folder *safepath.Root, name, source string) error {
	device, err := At(source)
	if err != nil {
		return err
	}
	path := filepath.Join(folder.Path(), name)
	if was, err := At(path); err == nil && was == device {
		return hold(folder, name, device)
	}
	if err := Unmap(folder, name); err != nil {
		return err
	}
	file, err := folder.OpenBeneath(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	from, err := os.OpenFile(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // read only
	if err := folder.BindFrom(from.Fd(), name, true); err != nil {
		return err
	}
	return hold(folder, name, device)
}

// Unmap undoes a map of this agent or of a kubelet. A missing map is no error. A map that is open stays, with an error that wraps
// unix.EBUSY.
func Unmap(folder *safepath.Root, name string) error {
	path := filepath.Join(folder.Path(), name)
	if err := release(path); err != nil {
		return err
	}
	for {
		is, err := folder.IsMountPoint(name)
		if err != nil || !is {
			return errors.Join(kinds.IgnoreAbsent(err), Drop(folder, name))
		}
		if err := folder.Unmount(name); err != nil {
			return err
		}
	}
}

// Drop removes the node of a device, a link, an empty file or an empty folder. A missing name is no error. Data and mounts are
// kept, with an error.
func Drop(folder *safepath.Root, name string) error {
	is, err := folder.IsMountPoint(name)
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	info, err := folder.Lstat(name)
	if err != nil || is || info.Mode().Type() != fs.ModeDevice {
		return errors.Join(kinds.IgnoreAbsent(err), folder.RemoveEmpty(name))
	}
	return kinds.IgnoreAbsent(folder.Unlink(name))
}
