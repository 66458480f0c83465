package dev

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
)

// daemon keeps a program running: one that ends is started again, after a back-off.
type daemon struct {
	// command makes the process that is to be started.
	command func() *exec.Cmd
	// say tells of an end and what follows.
	say func(what string)
	// backOff gives the time until the next start; nil means delays.
	backOff func(ran time.Duration) time.Duration

	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	ended error // the first unexpected end
	fail  chan struct{}
}

// endTime is how long the program may take to end when it is asked to.
const endTime = 10 * time.Second

// start starts the program and what keeps it running.
func (d *daemon) start() {
	if d.backOff == nil {
		d.backOff = (&delays{}).after
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop, d.done, d.fail = stop, make(chan struct{}), make(chan struct{})
	go d.run(ctx)
}

// close ends the program and waits for it.
func (d *daemon) close() {
	d.stop()
	<-d.done
}

// failed is closed with the first end that was not asked for; err says what it was.
func (d *daemon) failed() <-chan struct{} { return d.fail }

func (d *daemon) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

func (d *daemon) run(ctx context.Context) {
	defer close(d.done)
	for ctx.Err() == nil {
		begun := time.Now()
		err := d.once(ctx)
		if ctx.Err() != nil {
			return
		}
		d.note(err)
		wait := d.backOff(time.Since(begun))
		d.say(fmt.Sprintf("%v; starting it again in %v", err, wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (d *daemon) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil {
		d.ended = err
		close(d.fail)
	}
}

// once runs the program until it ends, or has been ended because ctx has.
func (d *daemon) once(ctx context.Context) error {
	cmd := d.command()
	name := filepath.Base(cmd.Path)
	p, err := containerd.Start(cmd)
	if err != nil {
		return fmt.Errorf("%s does not start: %w", name, err)
	}
	select {
	case <-p.Exited():
		return endOfProcess(name, p.Err())
	case <-ctx.Done():
		_ = p.End(syscall.SIGTERM, endTime) // one that had to be killed is over, too
		return nil
	}
}

func endOfProcess(name string, err error) error {
	if err == nil {
		return fmt.Errorf("%s has ended", name)
	}
	return fmt.Errorf("%s has ended: %w", name, err)
}

// delays is a back-off: it doubles with each short life.
type delays struct{ last time.Duration }

const (
	firstDelay = 250 * time.Millisecond
	lastDelay  = 10 * time.Second
	// longLife is what a program has to run for its ends to be forgotten.
	longLife = 30 * time.Second
)

func (d *delays) after(ran time.Duration) time.Duration {
	switch {
	case d.last == 0 || ran >= longLife:
		d.last = firstDelay
	default:
		d.last = min(2*d.last, lastDelay)
	}
	return d.last
}

// containerdCommand gives what starts containerd, its output going to log.
func containerdCommand(f folder, p Programs, log *os.File) func() *exec.Cmd {
	env := containerd.Env(os.Environ(), p.Shim, p.Runc, p.IPTables) // with our proxies, for pulls
	return func() *exec.Cmd {
		cmd := exec.Command(p.Containerd, "--config", f.at(containerdConf))
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = string(f), env, log, log
		return cmd
	}
}
