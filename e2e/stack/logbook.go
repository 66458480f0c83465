package stack

import (
	"os"
	"sync"
)

// logbook is a log file that can still be read when its directory has been removed.
type logbook struct {
	path string

	mu   sync.Mutex
	kept bool
	text string
}

// open opens the file for a process to append to.
func (l *logbook) open() (*os.File, error) {
	return os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// read gives all of the log; where it cannot be read, the reason takes its place.
func (l *logbook) read() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept {
		return l.text
	}
	data, err := os.ReadFile(l.path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// keep reads the file for the last time.
func (l *logbook) keep() {
	text := l.read()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept, l.text = true, text
}
