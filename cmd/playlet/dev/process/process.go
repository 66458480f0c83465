// Package process runs programs that go on in the background. It serves `playlet dev`, the end-to-end tests and the
// benchmarks, and imports nothing of the project.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a program that was started. Its methods may be called from several goroutines.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait; set before exited is closed
}

// Start starts a program and reaps it when it ends.
func Start(cmd *exec.Cmd) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has been reaped.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the process exists. It is false for nil.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Err is how the process ended: nil for exit code 0. It is to be asked when the process has exited.
func (p *Process) Err() error { return p.err }

// ExitCode is -1 where a signal ended the process. It is to be asked when the process has exited.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal; a process that has ended meanwhile is no error.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// End sends a signal and waits for the end. A process that has not ended after the limit is killed, and that is an error.
func (p *Process) End(s syscall.Signal, limit time.Duration) error {
	if !p.Running() {
		return nil
	}
	if err := p.Signal(s); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(limit):
	}
	err := fmt.Errorf("%s does not end on %v", p.cmd.Path, s)
	if s == syscall.SIGKILL {
		return err
	}
	err = errors.Join(err, p.Signal(syscall.SIGKILL))
	<-p.exited
	return err
}

// Tail is the last lines of a text.
func Tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
