package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identity identifies a process. Its number alone does not, since numbers are reused.
type Identity struct {
	PID int `json:"pid"`
	// Started is when it did, in the kernel's ticks since boot (proc_pid_stat(5), field 22).
	Started uint64 `json:"started"`
	// Command is its arguments, joined by blanks.
	Command string `json:"command"`
}

// identify reads the identity of the process, below proc, which is /proc.
func identify(proc string, pid int) (Identity, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Identity{}, err
	}
	started, err := startTime(string(stat))
	if err != nil {
		return Identity{}, fmt.Errorf("process %d: %w", pid, err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Identity{}, err
	}
	return Identity{pid, started, strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))}, nil
}

// startTime is the 22nd field. The second, in parentheses, may hold blanks and parentheses itself.
func startTime(stat string) (uint64, error) {
	const field, afterName = 22, 3
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) <= field-afterName {
		return 0, fmt.Errorf("a stat of %q", stat)
	}
	return strconv.ParseUint(fields[field-afterName], 10, 64)
}

// runs reports whether this very process still runs. A process that has ended and was not reaped has no command line, and counts
// as gone.
func (i Identity) runs(proc string) (bool, error) {
	if i.PID <= 0 {
		return false, nil
	}
	now, err := identify(proc, i.PID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return err == nil && now == i, err
}

// kill ends the process, if it is still this very one, and waits until it is gone.
func (i Identity) kill(proc string) error {
	deadline := time.Now().Add(kernelTimeout)
	for {
		there, err := i.runs(proc)
		if err != nil || !there {
			return err
		}
		if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d: %w", i.PID, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d (%s) does not end", i.PID, i.Command)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
