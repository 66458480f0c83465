// Package oomkill tells of each process that the kernel ends for want of memory, by the kernel's log
// (Documentation/ABI/testing/dev-kmsg). It is there on cgroup v1 and v2, and says at once who it was, and for which limit.
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

// Kill is one process that was ended, or, by Counts, one or more of a cgroup.
type Kill struct {
	Process string // its name, of 15 bytes at most; the process has chosen it
	PID     int    // as the machine sees it
	Group   string // the path of the cgroup that it was in
	Limited string // the path of the cgroup whose limit was met; empty: the whole machine is short of memory
	Times   uint64 // how many processes, of which nothing else is known; 0: the one that is named
}

// maxRecord is longer than any record of the kernel's log (PRINTK_MESSAGE_MAX, and its prefix).
const maxRecord = 8 << 10

// Log reads the kernel's log from when it was first asked on. It outlives those who ask: what was logged between two questions
// is told at the next. Safe for concurrent use.
type Log struct {
	path string
	mu   sync.Mutex
	file *os.File // nil: not opened yet
}

// New is the log at the path of the kernel's device.
func New(path string) *Log { return &Log{path: path} }

// Next waits for the next process that is ended, or until ctx ends, which is an error, too.
func (l *Log) Next(ctx context.Context) (Kill, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		file, err := os.OpenFile(l.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return Kill{}, err
		}
		if _, err := file.Seek(0, io.SeekEnd); err != nil { // what was before the start was told by the agent before
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

// parse reads a record of the log. The name of a process is the process' own choice: what is looked for stands before it, or is
// looked for from the end. What a process writes to the log has another facility than the kernel.
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
