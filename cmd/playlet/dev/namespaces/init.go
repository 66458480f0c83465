package namespaces

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Step is a part of setting namespaces up. Errors are told with What.
type Step struct {
	What string
	Do   func() error
}

// Init is what process 1 of new namespaces does: the steps, and then it starts this program anew, with these arguments and
// files beside the three usual ones, and reaps until that has ended. Of each signal that it gets, pass says what that is sent.
func Init(steps []Step, args []string, files []*os.File, pass func(os.Signal) os.Signal) (syscall.WaitStatus, error) {
	runtime.LockOSThread() // a cgroup namespace is a thread's; what is started must be by the one that has it
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

// SameFile says whether two paths lead to one file that is there.
func SameFile(path, other string) bool {
	a, err1 := os.Stat(path)
	b, err2 := os.Stat(other)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
