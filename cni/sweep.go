package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix begins the name of every trial, which is the container's ID for the plugins and the name of the namespace.
const prefix = "playlet-doctor-"

const (
	lockFile = "lock"
	// cacheDir is libcni's, of results. The runtime's own is not for us: its garbage collection reads it.
	cacheDir = "cache"
)

// errHeld says that a trial is under way.
var errHeld = errors.New("a trial is under way")

// takeLock makes a trial's folder, and takes its lock, which its process holds for as long as it lives.
func (t Trial) takeLock(id string) (*os.File, error) {
	if err := os.MkdirAll(t.dir(id), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(t.dir(id), lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Sweep undoes what trials have left that were killed: by their folders, and, after a restart of the machine, which takes
// these away, by the addresses that host-local has reserved for them on disk. It says what it did.
func (t Trial) Sweep(ctx context.Context, networks []Network) (notes []string, err error) {
	entries, err := os.ReadDir(t.StateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	for i := range networks {
		for _, l := range networks[i].leases() {
			ids = append(ids, l.container)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if !strings.HasPrefix(id, prefix) || filepath.Base(id) != id {
			continue
		}
		switch err := t.undoKilled(ctx, id, networks); {
		case errors.Is(err, errHeld):
		case err != nil:
			notes = append(notes, fmt.Sprintf("what an earlier trial has left (%s) could not be undone: %v", t.dir(id), err))
		default:
			notes = append(notes, "removed what an earlier trial had left that was killed")
		}
	}
	return notes, nil
}

// undoKilled undoes a trial, by what libcni has kept of it, or else by the addresses that are reserved for it.
func (t Trial) undoKilled(ctx context.Context, id string, networks []Network) error {
	lock, err := t.takeLock(id)
	if err != nil {
		return err
	}
	left := Attachments{BinDirs: t.Places.BinDirs, CacheDir: filepath.Join(t.dir(id), cacheDir), Networks: networks}
	list, err := left.Of(id)
	errs := []error{err}
	for _, one := range slices.Backward(list) {
		_, err := left.del(ctx, one)
		errs = append(errs, err)
	}
	errs = append(errs, removeNetNS(filepath.Join(t.NetNSDir, id)))
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, lock.Close())
	}
	return errors.Join(os.RemoveAll(t.dir(id)), lock.Close())
}
