package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a part that comes and goes; what it knows lies on disk.
type process struct {
	name, path, dir string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been reaped
}

func (p *process) start(args ...string) error {
	if p.running() {
		return fmt.Errorf("%s runs already", p.name)
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(p.path, args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.exited = cmd, exited
	return nil
}

// awaitReady waits until ready has no complaint.
func (p *process) awaitReady(ready func() error) error {
	var last error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
		if !p.running() {
			return fmt.Errorf("%s ended at once:\n%s", p.name, p.tail(20))
		}
		if last = ready(); last == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not get ready: %w\n%s", p.name, last, p.tail(20))
}

func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// pid is 0 when it does not run.
func (p *process) pid() int {
	if !p.running() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// kill ends it with SIGKILL and reaps it, term with SIGTERM; no process is no error.
func (p *process) kill() error { return p.end(syscall.SIGKILL) }
func (p *process) term() error { return p.end(syscall.SIGTERM) }

func (p *process) end(s syscall.Signal) error {
	if !p.running() {
		return nil
	}
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.mu.Unlock()
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-time.After(patience):
	}
	err := fmt.Errorf("%s does not end on %v", p.name, s)
	if s == syscall.SIGKILL {
		return err
	}
	err = errors.Join(err, cmd.Process.Kill())
	<-exited
	return err
}

func (p *process) log() string { return filepath.Join(p.dir, p.name+".log") }

// tail gives the last lines of the log; where it cannot be read, the reason takes their place.
func (p *process) tail(lines int) string {
	data, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
