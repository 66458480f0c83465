package dev

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/process"
)

// supervisedProgram is a program that is kept running: when it ends it is started again, after a back-off.
type supervisedProgram struct {
	// command makes the process that is to be started.
	command func() *exec.Cmd
	// say reports an end and its consequence.
	say func(what string)
	// backOff gives the time until the next start; nil means delays.
	backOff func(ran time.Duration) time.Duration

	stop  context.CancelFunc
	done  chan struct{}
	ended context.Context // ends with the first end of the program that was not asked for, which is its cause
	note  context.CancelCauseFunc
}

// endTime is how long the program may take to end when it is asked to.
const endTime = 10 * time.Second

// start starts the program and the goroutine that keeps it running.
func (s *supervisedProgram) start() {
	if s.backOff == nil {
		s.backOff = (&delays{}).after
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, make(chan struct{})
	s.ended, s.note = context.WithCancelCause(context.Background())
	go s.run(ctx)
}

// close ends the program and waits for it.
func (s *supervisedProgram) close() {
	s.stop()
	<-s.done
}

// failed is closed with the first unexpected end; err returns its cause.
func (s *supervisedProgram) failed() <-chan struct{} { return s.ended.Done() }

func (s *supervisedProgram) err() error { return context.Cause(s.ended) }

func (s *supervisedProgram) run(ctx context.Context) {
	defer close(s.done)
	for ctx.Err() == nil {
		begun := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		s.note(err)
		wait := s.backOff(time.Since(begun))
		s.say(fmt.Sprintf("%v; starting it again in %v", err, wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// once runs the program until it ends, or has been ended because ctx has.
func (s *supervisedProgram) once(ctx context.Context) error {
	cmd := s.command()
	name := filepath.Base(cmd.Path)
	p, err := process.Start(cmd)
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
	// longLife is the run time after which earlier ends of a program are forgotten.
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
