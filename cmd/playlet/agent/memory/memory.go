// Package memory gives memory of the process back to the kernel while the agent rests.
package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lookEvery is how often it is looked whether there is memory to give back; the first time soon, as a start touches all of
	// the program once.
	lookEvery = 10 * time.Second
	lookFirst = time.Second
	// busyAbove is the number of bytes that a busy agent allocates between two checks. Frequent reads of figures alone do not
	// make an agent busy.
	busyAbove = 32 << 20
	// heapAfter is how many looks there are at least between two givings of the heap: each costs a collection of garbage. Pages
	// of the program cost nothing worth counting.
	heapAfter = 6
	// worthwhile is how many bytes more must be resident than after the last giving.
	worthwhile = 4 << 20
	// garbage is the percentage of heap growth before a collection (GOGC); Go's default is 100. An agent that allocates little
	// has processor time to spare: its cost to a node is memory.
	garbage = 50
)

// releasePolicy decides when a kind of memory is given back. Its zero value is of a process that has just started.
type releasePolicy struct {
	least uint64 // bytes that were resident after the last giving
	wait  int    // looks until there may be another one
}

// due is called with each look, and takes the bytes that are resident.
func (g *releasePolicy) due(busy bool, resident uint64) bool {
	g.wait = max(0, g.wait-1)
	return !busy && g.wait == 0 && resident > g.least+worthwhile
}

// given records the resident bytes after a return of memory, and the number of checks until the next one may follow. The first
// one returns the memory of the start and delays no other: the pods of a booting node come right after it.
func (g *releasePolicy) given(resident uint64, wait int) {
	if g.least > 0 {
		g.wait = wait
	}
	g.least = resident
}

// GiveBack runs until ctx ends. An agent is busy for seconds and idle for hours. GiveBack returns the memory of a roll-out after
// it, and the program pages that only the start needed. Go alone would retain as much again as is in use.
func GiveBack(ctx context.Context) {
	var heap, program releasePolicy
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64() // excludes the allocations of the start
	for next := time.NewTimer(lookFirst); ; next.Reset(lookEvery) {
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
		metrics.Read(sample)
		allocated := sample[0].Value.Uint64()
		busy := allocated-before > busyAbove
		before = allocated
		own, files := residentNow()
		if heap.due(busy, own) {
			debug.FreeOSMemory()
			own, _ = residentNow()
			heap.given(own, heapAfter)
		}
		if program.due(busy, files) {
			_ = unmapProgram() // it stays as it is
			_, files = residentNow()
			program.given(files, 0)
		}
	}
}

// residentNow returns the resident bytes of this process: anonymous and of files (/proc/PID/statm, proc_pid_statm(5)). They are
// 0 if they cannot be read.
func residentNow() (own, files uint64) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0
	}
	var size, all, shared uint64
	_, _ = fmt.Sscan(string(text), &size, &all, &shared) // 0 with an error
	page := uint64(os.Getpagesize())                     //nolint:gosec // it is positive
	return (all - shared) * page, shared * page
}

// unmapProgram has the kernel forget which of the program's own pages this process has used; they stay in its cache, and
// those that are used again are back with the next use. In a process that a debugger is attached to nothing is done, since
// its breakpoints lie in such pages.
func unmapProgram() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !strings.Contains(string(status), "\nTracerPid:\t0\n") {
		return err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range programPages(string(maps), program) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, a.start, a.end-a.start, unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, errno)
		}
	}
	return errors.Join(errs...)
}

// addresses are a range of them, without the end.
type addresses struct{ start, end uintptr }

// programPages finds in the text of /proc/PID/smaps (proc_pid_smaps(5)) where the program is mapped, and is as it is in the
// file: where it cannot be written to, and no page of it is the process' own, as those are that a loader has relocated before
// it protected them.
func programPages(smaps, program string) (out []addresses) {
	var at addresses
	fits := false
	for line := range strings.Lines(smaps) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == "Anonymous:":
			if fits && f[1] == "0" {
				out = append(out, at)
			}
			fits = false
		case len(f) >= 5 && strings.Contains(f[0], "-"):
			at, fits = rangeOf(f[0])
			fits = fits && len(f) == 6 && f[5] == program && len(f[1]) == 4 && f[1][1] != 'w' && f[1][3] == 'p'
		}
	}
	return out
}

// rangeOf parses the address range at the beginning of a mapping.
func rangeOf(text string) (addresses, bool) {
	from, to, _ := strings.Cut(text, "-")
	start, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	return addresses{uintptr(start), uintptr(end)}, err == nil && err2 == nil && start < end
}
