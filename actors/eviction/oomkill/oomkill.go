// Package oomkill reports each process that the kernel kills when memory runs out. It reads the kernel's log
// (Documentation/ABI/testing/dev-kmsg), which exists on cgroup v1 and v2 and immediately names the process and the limit.
package oomkill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Kill is one killed process or, from Counts, one or more of a cgroup.
type Kill struct {
	Process string // its name, of 15 bytes at most; chosen by the process
	PID     int    // in the machine's namespace
	Group   string // the path of its cgroup
	Limited string // the path of the cgroup that met its limit; empty: the whole machine is short of memory
	Times   uint64 // the number of otherwise unknown processes; 0: the named one
}

// maxRecord exceeds every record of the kernel's log (PRINTK_MESSAGE_MAX, and its prefix).
const maxRecord = 8 << 10

// Log reads the kernel's log from the first call on. It outlives its callers: records between two calls are returned by the
// next. It is safe for concurrent use.
type Log struct {
	path string
	mu   sync.Mutex
	file *os.File // nil: not opened yet
}

// New returns the log at the path of the kernel's device.
func New(path string) *Log { return &Log{path: path} }

// Next waits for the next kill. It returns an error when ctx ends.
func (l *Log) Next(ctx context.Context) (Kill, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		file, err := os.OpenFile(l.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return Kill{}, err
		}
		if _, err := file.Seek(0, io.SeekEnd); err != nil { // the previous agent reported earlier kills
			return Kill{}, errors.Join(err, file.Close())
		}
		l.file = file
	}
	kill, err := next(ctx, l.file)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(fmt.Errorf("%s: %w", l.path, err), l.file.Close())
		l.file = nil
	}
	return kill, err
}

func next(ctx context.Context, file *os.File) (Kill, error) {
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return Kill{}, err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = file.SetReadDeadline(time.Unix(1, 0)) // it could be set before
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	record := make([]byte, maxRecord)
	for {
		n, err := file.Read(record)
		switch {
		case errors.Is(err, unix.EPIPE): // records were overwritten before they were read
		case errors.Is(err, os.ErrDeadlineExceeded):
			return Kill{}, ctx.Err()
		case err != nil:
			return Kill{}, err
		default:
			if kill, is := parse(string(record[:n])); is {
				return kill, nil
			}
		}
	}
}

// parse reads a record of the log. A process chooses its own name, so every match precedes the name or is found from the end.
// Records written by processes have another facility than the kernel's.
func parse(record string) (k Kill, is bool) {
	head, text, _ := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	if p, err := strconv.Atoi(priority); err != nil || p > 7 {
		return Kill{}, false
	}
	text, _, _ = strings.Cut(text, "\n")
	text, is = strings.CutPrefix(text, "oom-kill:")
	groups, task, found := strings.Cut(text, ",task=")
	if !is || !found {
		return Kill{}, false
	}
	groups, k.Group, _ = strings.Cut(groups, ",task_memcg=")
	_, k.Limited, _ = strings.Cut(groups, ",oom_memcg=")
	name, pid, found := cutLast(task, ",pid=")
	pid, _, _ = strings.Cut(pid, ",")
	var err error
	k.Process = name
	k.PID, err = strconv.Atoi(pid)
	return k, found && err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
