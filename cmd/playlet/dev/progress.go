package dev

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Progress prints steps: a line each, with how long it took in front. On a terminal a step shows while it is under way.
// It may be used by several goroutines, but one step at a time.
type Progress struct {
	out  io.Writer
	live bool

	mu   sync.Mutex
	open string // the line of the step that is under way, where it shows
}

// NewProgress prints to out.
func NewProgress(out io.Writer) *Progress { return &Progress{out: out, live: isTerminal(out)} }

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS) //nolint:gosec // a descriptor is an int everywhere else
	return err == nil
}

const (
	timeColumn = "%7.1f s  %s\n"
	openColumn = "      ...  "
	// wipe goes to the begin of the line and erases it.
	wipe = "\r\x1b[K"
)

// longStep is how long a step may take before what it waits for is printed where no line can be replaced.
const longStep = 5 * time.Second

// Step does work that may take a moment. What work returns is said of it when it is done; what it says meanwhile is
// what it waits for.
func (p *Progress) Step(name string, work func(waiting func(what string)) (done string, err error)) error {
	begun := time.Now()
	p.show(name)
	last := ""
	done, err := work(func(what string) {
		if what == last {
			return
		}
		last = what
		if !p.live && time.Since(begun) > longStep {
			p.Line(openColumn+"%s: %s", name, what)
		}
		p.show(name + ": " + what)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != "" {
		fmt.Fprint(p.out, wipe)
		p.open = ""
	}
	if err != nil {
		fmt.Fprintf(p.out, timeColumn, time.Since(begun).Seconds(), name+": failed")
		return err
	}
	if done != "" {
		name += ": " + done
	}
	fmt.Fprintf(p.out, timeColumn, time.Since(begun).Seconds(), name)
	return nil
}

// show replaces the line of the step that is under way.
func (p *Progress) show(text string) {
	if !p.live {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = openColumn + text
	fmt.Fprint(p.out, wipe+p.open)
}

// Line prints a line between steps, or above the one that is under way.
func (p *Progress) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != "" {
		fmt.Fprint(p.out, wipe)
	}
	fmt.Fprintf(p.out, format+"\n", args...)
	if p.open != "" {
		fmt.Fprint(p.out, p.open)
	}
}
