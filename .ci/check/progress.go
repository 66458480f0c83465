package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// silence is the time without output after which a step is reported to be still running.
const silence = 50 * time.Second

// progress is a step's writer, which reports that the step still runs when nothing was written for a while. Safe for concurrent
// use; each write stays whole.
type progress struct {
	name  string
	every time.Duration
	begun time.Time

	mu      sync.Mutex
	to      io.Writer
	timer   *time.Timer
	stopped bool
}

// watchProgress returns a progress for out. stop ends it.
func watchProgress(out io.Writer, name string, every time.Duration) *progress {
	p := &progress{name: name, every: every, begun: time.Now(), to: out}
	p.timer = time.AfterFunc(every, p.silent)
	return p
}

func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.timer.Reset(p.every)
	}
	return p.to.Write(b)
}

func (p *progress) silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	fmt.Fprintf(p.to, "... %s: still running, %s so far\n", p.name, elapsed(p.begun))
	p.timer.Reset(p.every)
}

func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
}
