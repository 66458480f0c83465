package namespaces

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Step is a part of the set-up of namespaces. What is the prefix of its errors.
type Step struct {
	What string
	Do   func() error
}

// Init runs as process 1 of new namespaces. It runs the steps and starts this program again, with these arguments and with files
// after the three standard ones. It then reaps until that process has ended. pass maps each received signal to the one that is
// forwarded.
func Init(steps []Step, args []string, files []*os.File, pass func(os.Signal) os.Signal) (syscall.WaitStatus, error) {
	runtime.LockOSThread() // a cgroup namespace is a thread's, and only its own children are in it
	for _, s := range steps {
		if err := s.Do(); err != nil {
			return 0, fmt.Errorf("%s: %w", s.What, err)
		}
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	p, err := os.StartProcess(Self(), args, &os.ProcAttr{Files: append([]*os.File{os.Stdin, os.Stdout, os.Stderr}, files...)})
	if err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(p.Pid, pass(s).(syscall.Signal)) // it may have ended meanwhile
		}
	}()
	return reap(p.Pid)
}

// reap reaps every process that has ended, until the one with this number has.
func reap(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || got == pid {
			return status, err
		}
	}
}

// Self is this program, under its name where that still leads to it.
func Self() string {
	const link = "/proc/self/exe"
	path, err := os.Executable()
	if err != nil || !SameFile(path, link) {
		return link
	}
	return path
}

// SameFile reports whether two paths lead to the same existing file.
func SameFile(path, other string) bool {
	a, err1 := os.Stat(path)
	b, err2 := os.Stat(other)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
