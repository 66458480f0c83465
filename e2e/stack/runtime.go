package stack

import (
	"context"
	"errors"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
)

// StartRuntime starts the runtime and waits until it reports itself and its network as ready. It fails if it is running.
func (s *Stack) StartRuntime() error {
	cmd := s.files().Command(s.parts.Containerd, append([]string{"HOME=" + s.Dir}, s.env...), s.parts.Shim, s.parts.Runc)
	if err := s.daemon.Start(cmd); err != nil {
		return err
	}
	return s.daemon.AwaitReady(s.ready)
}

// KillRuntime kills the runtime with SIGKILL and reaps it. Shims and containers go on.
func (s *Stack) KillRuntime() error { return s.daemon.End(syscall.SIGKILL) }

// TermRuntime asks the runtime to end and reaps it. Shims and containers go on.
func (s *Stack) TermRuntime() error { return s.daemon.End(syscall.SIGTERM) }

// RestartRuntime is TermRuntime and StartRuntime, as an upgrade does.
func (s *Stack) RestartRuntime() error {
	if err := s.TermRuntime(); err != nil {
		return err
	}
	return s.StartRuntime()
}

// SuperviseRuntime starts the runtime again whenever it ends, as a service manager does, until stop is called. Meanwhile nothing
// else may stop or start the runtime.
func (s *Stack) SuperviseRuntime() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if !s.daemon.Running() {
				if err := s.StartRuntime(); err != nil { // it may have been killed again
					s.logf("start of the runtime: %v", err)
				}
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// FreezeRuntime stops the runtime's process with SIGSTOP, so that it accepts connections but answers none, until
// ThawRuntime. It returns when every thread has stopped.
func (s *Stack) FreezeRuntime() error {
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(s.daemon.PID())
}

// ThawRuntime undoes FreezeRuntime.
func (s *Stack) ThawRuntime() error { return s.signal(syscall.SIGCONT) }

// RuntimeLog is all that the runtime has logged, over its restarts.
func (s *Stack) RuntimeLog() string { return s.daemon.Text() }

func (s *Stack) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := s.client.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	return containerd.Ready(status)
}

func (s *Stack) signal(sig syscall.Signal) error {
	if !s.daemon.Running() {
		return errors.New("the runtime does not run")
	}
	return s.daemon.Process().Signal(sig)
}
