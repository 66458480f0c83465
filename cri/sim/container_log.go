package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logFile is the open CRI log of one running container. It keeps writing to the same file after a rename, until it is reopened.
// It is safe for concurrent use. A logFile that is not open discards its input.
type logFile struct {
	mu   sync.Mutex
	file *os.File
}

// open begins to append to path, and closes the previous file. It creates the folder if needed, as containerd 2 does, and never
// follows a link at the end of path.
func (l *logFile) open(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return errUnknown("failed to create and open log file: %v", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW, 0o640)
	if err != nil {
		return errUnknown("failed to create and open log file: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
	l.file = f
	return nil
}

// write appends lines in the CRI log format: time, stream, tag F for a full line, text.
func (l *logFile) write(at time.Time, stream string, lines ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	for _, line := range lines {
		// A container does not notice a full disk through its log either.
		_, _ = fmt.Fprintf(l.file, "%s %s F %s\n", at.Format(time.RFC3339Nano), stream, line)
	}
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *logFile) closeLocked() {
	if l.file != nil {
		_ = l.file.Close() // writes are unbuffered
		l.file = nil
	}
}

// ReopenContainerLog makes a running container write to a new file at its log path.
func (s *runtimeService) ReopenContainerLog(_ context.Context,
	req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	r := s.r
	r.mu.Lock()
	c := r.store.containers[req.GetContainerId()]
	running := c != nil && c.running()
	r.mu.Unlock()
	switch {
	case c == nil:
		return nil, errNoContainer(req.GetContainerId())
	case !running:
		return nil, errUnknown("container is not running")
	}
	if r.opts.WriteLogs && c.logPath != "" {
		if err := c.log.open(c.logPath); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
