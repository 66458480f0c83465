package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
)

// daemon is the runtime's process, which comes and goes; its state stays on disk.
type daemon struct {
	stack *Stack

	mu      sync.Mutex
	process *containerd.Process // nil before the first start
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
	return awaitStopped(s.daemon.process.PID())
}

// ThawRuntime undoes FreezeRuntime.
func (s *Stack) ThawRuntime() error { return s.daemon.signal(syscall.SIGCONT) }

// RuntimePID is the process ID of the runtime, 0 when it does not run.
func (s *Stack) RuntimePID() int {
	if !s.daemon.running() {
		return 0
	}
	return s.daemon.process.PID()
}

// RuntimeLog is all that the runtime has logged, over its restarts.
func (s *Stack) RuntimeLog() string { return s.log.read() }

func (d *daemon) running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process.Running()
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
	cmd.Env = containerd.Env(append([]string{"HOME=" + s.Dir}, s.env...), s.parts.Shim, s.parts.Runc)
	process, err := containerd.Start(cmd)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.process = process
	return nil
}

func (d *daemon) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var last error
	for ; ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
		if !d.running() {
			return fmt.Errorf("the runtime ended at once:\n%s", containerd.Tail(d.stack.RuntimeLog(), 20))
		}
		if last = ready(ctx, d.stack.client); last == nil {
			return nil
		}
	}
	return fmt.Errorf("the runtime does not get ready: %w\n%s", last, containerd.Tail(d.stack.RuntimeLog(), 20))
}

func ready(ctx context.Context, c *CRI) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := c.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	return containerd.Ready(status)
}

func (d *daemon) signal(s syscall.Signal) error {
	if !d.running() {
		return errors.New("the runtime does not run")
	}
	return d.process.Signal(s)
}

// end ends the process in one way or, when that takes for ever, the other; no process is no error.
func (d *daemon) end(s syscall.Signal) error { return d.process.End(s, waitLimit) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
