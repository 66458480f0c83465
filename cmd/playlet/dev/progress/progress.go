// Package progress prints the progress of a run, step by step.
package progress

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Progress prints one line per step, with its duration in front. A terminal shows the step in progress. Several goroutines may
// use it, but only one step runs at a time.
type Progress struct {
	// Unread, unless nil, is called when the output is closed, possibly more than once. It is set before the first line.
	Unread func()

	out   io.Writer
	live  bool
	width func() int // of the terminal, 0 where it is not known

	mu   sync.Mutex
	open string // the shown line of the step in progress
}

// New prints to out.
func New(out io.Writer) *Progress {
	p := &Progress{out: out, width: func() int { return 0 }}
	f, ok := out.(*os.File)
	if !ok {
		return p
	}
	fd := int(f.Fd())
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		p.live, p.width = true, func() int { return columns(fd) }
	}
	return p
}

func columns(fd int) int {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

const (
	timeColumn = "%7.1f s  %s\n"
	openColumn = "      ...  "
	// wipe goes to the begin of the line and erases it.
	wipe = "\r\x1b[K"
)

// longStep is the duration after which a pending step is printed, if no line can be replaced.
const longStep = 5 * time.Second

// Step runs work, which may take a moment. The result that work returns is printed after the name at the end. waiting reports
// the reason for the wait meanwhile.
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
		p.print(wipe)
		p.open = ""
	}
	if err != nil {
		p.print(fmt.Sprintf(timeColumn, time.Since(begun).Seconds(), name+": failed"))
		return err
	}
	if done != "" {
		name += ": " + done
	}
	p.print(fmt.Sprintf(timeColumn, time.Since(begun).Seconds(), name))
	return nil
}

// show replaces the line of the step in progress. It is cut to the width of the terminal, since a wrapped line could not be
// erased.
func (p *Progress) show(text string) {
	if !p.live {
		return
	}
	line := []rune(openColumn + text)
	if width := p.width(); width > 0 && len(line) >= width {
		line = line[:width-1]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = string(line)
	p.print(wipe + p.open)
}

// Line prints a line between steps, or above the step in progress.
func (p *Progress) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf(format, args...) + "\n"
	if p.open != "" {
		line = wipe + line + p.open
	}
	p.print(line)
}

// print is called with the lock held.
func (p *Progress) print(text string) {
	_, err := io.WriteString(p.out, text)
	if errors.Is(err, syscall.EPIPE) && p.Unread != nil {
		p.Unread()
	}
}
