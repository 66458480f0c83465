package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// undo removes all that a record names and is still there, and returns done, with the reason if files of the run's folder stay.
// It may be done again. It goes on after each failure, so that as little as possible is left.
func undo(r *Record, done string) (string, error) {
	boot, err := bootID()
	if err != nil {
		return "", err
	}
	var errs []error
	folders := r.Folders
	if boot == r.Boot {
		errs = append(errs, r.Init.kill(procDir), namespaces.RemoveCgroups(r.Name(), r.Controllers, r.Groups),
			r.Changes.Undo(r.Name()), removeSocket(r.AdminSocket))
	} else { // files in /run belong to this boot
		folders = slices.DeleteFunc(slices.Clone(folders), func(dir string) bool { return strings.HasPrefix(dir, "/run/") })
	}
	err = folder(r.Dir).remove(r)
	if errors.Is(err, errReplaced) { // trying again would change nothing
		done, err = fmt.Sprintf("%s; the files in %s stay: %v", done, r.Dir, err), nil
	}
	errs = append(errs, err, removeFolders(folders))
	return done, errors.Join(errs...)
}

// listening reports whether a process accepts connections on the unix socket.
func listening(path string) bool {
	conn, err := net.DialTimeout("unix", path, 5*time.Second)
	if err != nil {
		return errors.Is(err, syscall.EAGAIN) // its queue is full: it is alive
	}
	_ = conn.Close() // nothing was sent
	return true
}

// removeSocket removes an agent's unused socket, and the lock beside it. It takes that lock first: an agent that holds it, or is
// about to, keeps both.
func removeSocket(path string) error {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // it is removed
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil // another agent's by now
	}
	if listening(path) {
		return nil
	}
	var errs []error
	for _, name := range []string{path, path + ".lock"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
