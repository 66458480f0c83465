package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix begins the name of every trial, which is the container's ID for the plugins and the name of the namespace. The number of
// its process follows.
const prefix = "playlet-doctor-"

// processGone reports whether a trial has ended, by its name: its process is gone, or has our own ID.
func processGone(name string) bool {
	number, ours := strings.CutPrefix(name, prefix)
	pid, err := strconv.Atoi(number)
	return ours && (err != nil || pid <= 0 || pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH))
}

// Sweep cleans up after killed trials, with the present configuration. It removes their namespaces. After a reboot, which
// removes these, it releases the addresses that host-local has reserved on disk. It returns a note for each action.
func (t NetworkCheck) Sweep(ctx context.Context, networks []Network) (notes []string, err error) {
	entries, err := os.ReadDir(t.NetNSDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	tried := map[string]bool{}
	for _, e := range entries {
		if !processGone(e.Name()) {
			continue
		}
		a := t.attempt(e.Name())
		tried[a.id] = true
		var errs []error
		if !isNetNS(a.netns) { // plugins forgive one that is not there, and nothing else in its place
			errs = append(errs, removeNetNS(a.netns))
		}
		for i := range slices.Backward(networks) {
			errs = append(errs, a.del(ctx, &networks[i]))
		}
		err := errors.Join(errs...)
		if err == nil {
			err = removeNetNS(a.netns)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("what an earlier trial has left (%s) could not be undone: %v", a.netns, err))
			continue
		}
		notes = append(notes, "removed what an earlier trial had left that was killed")
	}
	for i := range networks {
		for _, lease := range networks[i].leases() {
			if !processGone(lease.container) || tried[lease.container] {
				continue
			}
			if err := t.attempt(lease.container).del(ctx, &networks[i]); err != nil {
				notes = append(notes, fmt.Sprintf("an address that an earlier trial has reserved (%s) could not be freed: %v",
					lease.file, err))
				continue
			}
			notes = append(notes, "freed an address that an earlier trial had reserved")
		}
	}
	return notes, nil
}
