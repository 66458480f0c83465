package blockmap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// loop is a loop device over a file.
type loop struct{ path, backing string }

// loops lists the loop devices in use.
func loops() (out []loop, err error) {
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is free by now
		}
		name := strings.TrimPrefix(filepath.Dir(filepath.Dir(file)), "/sys/block/")
		backing := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(text)), "(deleted)"))
		out = append(out, loop{"/dev/" + name, backing})
	}
	return out, err
}

// loopsOver lists the loop devices over a file, by its path.
func loopsOver(path string) (out []loop, err error) {
	resolved := path
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		resolved = filepath.Join(folder, filepath.Base(path))
	}
	all, err := loops()
	for _, l := range all {
		if l.backing == path || l.backing == resolved {
			out = append(out, l)
		}
	}
	return out, err
}

// over returns the device that a loop device is over. The error is unix.ENXIO if it is over a file, or free.
func (l loop) over() (Device, error) {
	f, err := os.OpenFile(l.path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Device{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return Device{}, err
	}
	if info.Rdevice == 0 {
		return Device{}, unix.ENXIO
	}
	return numbered(unix.Major(info.Rdevice), unix.Minor(info.Rdevice)), nil
}

// loopTries limits the attempts to get a loop device that others do not take first.
const loopTries = 16

// hold keeps a mapped device open by a loop device, unless one does.
func hold(folder *safepath.Root, name string, device Device) error {
	path := filepath.Join(folder.Path(), name)
	held, err := loopsOver(path)
	if err != nil || len(held) > 0 {
		return err
	}
	backing, err := folder.OpenBeneath(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("device %s cannot be opened: %w", device, err)
	}
	defer backing.Close() //nolint:errcheck // read only
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("device %s cannot be kept open: no loop devices (modprobe loop): %w", device, err)
	}
	defer control.Close() //nolint:errcheck // nothing is written
	for range loopTries {
		if err = attach(control, backing); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("device %s cannot be kept open by a loop device: %w", device, err)
	}
	return nil
}

// attach makes a free loop device over a file. It is read-only like the descriptor of the file.
func attach(control, backing *os.File) error {
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_FD, int(backing.Fd())), f.Close())
}

// release frees the loop devices over a file.
func release(path string) error {
	held, err := loopsOver(path)
	for _, l := range held {
		f, openErr := os.OpenFile(l.path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		_, clearErr := unix.IoctlRetInt(int(f.Fd()), unix.LOOP_CLR_FD)
		if errors.Is(clearErr, unix.ENXIO) { // it is free
			clearErr = nil
		}
		err = errors.Join(err, clearErr, f.Close())
	}
	return err
}
