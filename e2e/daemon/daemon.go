// Package daemon runs programs that come and go during a test: containerd, the agent, etcd and kube-apiserver.
package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
)

// waitLimit bounds every wait of a Daemon; it is reached only when something is broken, however slow the machine.
const waitLimit = 5 * time.Minute

// Daemon is a program that is restarted: its processes, one after another, append to one log. Its state is on disk. Its methods
// may be called from several goroutines.
type Daemon struct {
	// Name is used in errors, Log is the path of its log.
	Name, Log string

	mu      sync.Mutex
	process *process.Process // nil before the first start
	kept    *string          // the log, where its file may have gone
}

// Start starts a process with its output in the log. It fails if one is running.
func (d *Daemon) Start(cmd *exec.Cmd) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process.Running() {
		return fmt.Errorf("%s runs already", d.Name)
	}
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	started, err := process.Start(cmd)
	if err == nil {
		d.process = started
	}
	return err
}

// Process is the last that was started, nil before.
func (d *Daemon) Process() *process.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process
}

// Running reports whether there is a process.
func (d *Daemon) Running() bool { return d.Process().Running() }

// PID is the number of the process, 0 when there is none.
func (d *Daemon) PID() int {
	if p := d.Process(); p.Running() {
		return p.PID()
	}
	return 0
}

// End ends the process by a signal and reaps it; no process is no error.
func (d *Daemon) End(s syscall.Signal) error { return d.Process().End(s, waitLimit) }

// AwaitReady waits until ready has no complaint. The error has the last lines of the log.
func (d *Daemon) AwaitReady(ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	p := d.Process()
	if p == nil {
		return fmt.Errorf("%s was not started", d.Name)
	}
	if err := process.Await(ctx, p.Exited(), ready); err != nil {
		return fmt.Errorf("%s: %w\n%s", d.Name, err, d.Last(20))
	}
	return nil
}

// Text is all that was logged; where it cannot be read, the reason takes its place.
func (d *Daemon) Text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kept != nil {
		return *d.kept
	}
	data, err := os.ReadFile(d.Log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Last are the last lines that were logged, so many at the most.
func (d *Daemon) Last(lines int) string { return process.Tail(d.Text(), lines) }

// Keep reads the log for the last time: its file may go.
func (d *Daemon) Keep() {
	text := d.Text()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = &text
}
