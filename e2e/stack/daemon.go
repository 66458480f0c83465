package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// daemon is the runtime's process, which comes and goes; its state stays on disk.
type daemon struct {
	stack *Stack

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been reaped
}

// StartRuntime starts the runtime and waits until it says that it and its network are ready. It is an error when it
// runs already.
func (s *Stack) StartRuntime() error {
	if err := s.daemon.start(); err != nil {
		return err
	}
	return s.daemon.awaitReady()
}

// KillRuntime kills the runtime with SIGKILL and reaps it. Shims and containers go on.
func (s *Stack) KillRuntime() error { return s.daemon.end(syscall.SIGKILL) }

// TermRuntime asks the runtime to end and reaps it. Shims and containers go on.
func (s *Stack) TermRuntime() error { return s.daemon.end(syscall.SIGTERM) }

// RestartRuntime is TermRuntime and StartRuntime, as an upgrade does.
func (s *Stack) RestartRuntime() error {
	if err := s.TermRuntime(); err != nil {
		return err
	}
	return s.StartRuntime()
}

// FreezeRuntime stops the runtime's process with SIGSTOP, so that it accepts connections but answers none, until
// ThawRuntime. It returns when every thread has stopped.
func (s *Stack) FreezeRuntime() error {
	if err := s.daemon.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(s.daemon.cmd.Process.Pid)
}

// ThawRuntime undoes FreezeRuntime.
func (s *Stack) ThawRuntime() error { return s.daemon.signal(syscall.SIGCONT) }

// RuntimePID is the process ID of the runtime, 0 when it does not run.
func (s *Stack) RuntimePID() int {
	if !s.daemon.running() {
		return 0
	}
	return s.daemon.cmd.Process.Pid
}

// RuntimeLog is all that the runtime has logged, over its restarts.
func (s *Stack) RuntimeLog() string { return s.log.read() }

func (d *daemon) running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

func (d *daemon) start() error {
	if d.running() {
		return errors.New("the runtime runs already")
	}
	s := d.stack
	log, err := s.log.open()
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(s.parts.Containerd, "--config", s.config())
	cmd.Dir = s.Dir
	cmd.Stdout, cmd.Stderr = log, log
	// containerd looks for its shim, and the shim for runc's helpers, in $PATH.
	path := filepath.Dir(s.parts.Shim) + ":" + filepath.Dir(s.parts.Runc) + ":/usr/sbin:/usr/bin:/sbin:/bin"
	cmd.Env = []string{"PATH=" + path, "HOME=" + s.Dir}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cmd, d.exited = cmd, exited
	return nil
}

func (d *daemon) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var last error
	for ; ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
		if !d.running() {
			return fmt.Errorf("the runtime ended at once:\n%s", tail(d.stack.RuntimeLog(), 20))
		}
		if last = ready(ctx, d.stack.client); last == nil {
			return nil
		}
	}
	return fmt.Errorf("the runtime does not get ready: %w\n%s", last, tail(d.stack.RuntimeLog(), 20))
}

func ready(ctx context.Context, c *CRI) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := c.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, condition := range status.GetStatus().GetConditions() {
		if !condition.Status && strings.HasSuffix(condition.Type, "Ready") {
			return fmt.Errorf("%s: %s: %s", condition.Type, condition.Reason, condition.Message)
		}
	}
	return nil
}

func (d *daemon) signal(s syscall.Signal) error {
	if !d.running() {
		return errors.New("the runtime does not run")
	}
	return d.cmd.Process.Signal(s)
}

// end ends the process in one way or, when that takes for ever, the other; no process is no error.
func (d *daemon) end(s syscall.Signal) error {
	if !d.running() {
		return nil
	}
	if err := d.signal(s); err != nil {
		return err
	}
	return reap(d.cmd, d.exited, s)
}

// reap waits for a process that was sent a signal.
func reap(cmd *exec.Cmd, exited <-chan struct{}, sent syscall.Signal) error {
	select {
	case <-exited:
		return nil
	case <-time.After(patience):
	}
	err := fmt.Errorf("%s does not end on %v", cmd.Path, sent)
	if sent == syscall.SIGKILL {
		return err
	}
	err = errors.Join(err, cmd.Process.Kill())
	<-exited
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
