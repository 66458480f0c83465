package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// silence is how long a step may print nothing before it is said that it still runs.
const silence = 50 * time.Second

// progress is a writer for a step. It says that the step still runs whenever nothing was written for a while. Several
// goroutines may write at the same time; each write stays whole.
type progress struct {
	name  string
	every time.Duration
	begun time.Time

	mu      sync.Mutex
	to      io.Writer
	timer   *time.Timer
	stopped bool
}

// watchProgress begins to watch over what the step writes to out. stop ends it.
func watchProgress(out io.Writer, name string, every time.Duration) *progress {
	p := &progress{name: name, every: every, begun: time.Now(), to: out}
	p.timer = time.AfterFunc(every, p.silent)
	return p
}

// Write implements io.Writer.
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
