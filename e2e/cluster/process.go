package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
)

// process is a part that comes and goes; what it knows lies on disk.
type process struct {
	name, path, dir string

	mu      sync.Mutex
	process *containerd.Process // nil before the first start
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
	started, err := containerd.Start(cmd)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = started
	return nil
}

// awaitReady waits until ready has no complaint.
func (p *process) awaitReady(ready func() error) error {
	var last error
	for begun := time.Now(); time.Since(begun) < waitLimit; time.Sleep(20 * time.Millisecond) {
		if !p.running() {
			return fmt.Errorf("%s ended at once:\n%s", p.name, p.tail(20))
		}
		if last = ready(); last == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not get ready: %w\n%s", p.name, last, p.tail(20))
}

func (p *process) running() bool { return p.now().Running() }

func (p *process) now() *containerd.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// pid is 0 when it does not run.
func (p *process) pid() int {
	if !p.running() {
		return 0
	}
	return p.now().PID()
}

// kill ends it with SIGKILL and reaps it, term with SIGTERM; no process is no error.
func (p *process) kill() error { return p.end(syscall.SIGKILL) }
func (p *process) term() error { return p.end(syscall.SIGTERM) }

func (p *process) end(s syscall.Signal) error { return p.now().End(s, waitLimit) }

func (p *process) log() string { return filepath.Join(p.dir, p.name+".log") }

// tail gives the last lines of the log; where it cannot be read, the reason takes their place.
func (p *process) tail(lines int) string {
	data, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	return containerd.Tail(string(data), lines)
}
