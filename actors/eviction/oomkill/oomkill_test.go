package oomkill

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	inPod  = "6,2,3,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=abc,mems_allowed=0,oom_memcg=/kubepods/podu,task_memcg=/kubepods/podu/abc,task=stress,pid=42,uid=0\n SUBSYSTEM=x"
	global = "6,2,3,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=a b,pid=7,uid=1000\n"
)

func TestRecordsOfTheKernel(t *testing.T) {
	for record, want := range map[string]Kill{
		inPod:  {Process: "stress", PID: 42, Group: "/kubepods/podu/abc", Limited: "/kubepods/podu"},
		global: {Process: "a b", PID: 7, Group: "/user.slice"},
		// A name that looks like more of the record.
		"6,2,3,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task_memcg=/a/b,task=x,pid=1,uid=0,pid=42,uid=0": {
			Process: "x,pid=1,uid=0", PID: 42, Group: "/a/b", Limited: "/a"},
		// Not the kernel's: a process has written it.
		"14" + inPod[1:]: {}, "12,1,1,-;oom-kill:global_oom,task_memcg=/,task=x,pid=1,uid=0": {},
		// Unrelated or truncated.
		"6,1,1,-;Memory cgroup out of memory: Killed process 42 (stress)": {}, "": {}, ";": {}, "6;oom-kill:": {},
		"6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/,task=x": {},
	} {
		got, is := parse(record)
		if is != (want != Kill{}) || is && got != want {
			t.Errorf("%q: %+v, %t, want %+v", record, got, is, want)
		}
	}
}

// Any process name is reported unchanged, and no other part of the record is affected. The result never exceeds the record.
func FuzzRecords(f *testing.F) {
	f.Add(inPod)
	f.Add(global)
	f.Add(",task=,pid=1,")
	f.Add(",oom_memcg=/")
	f.Fuzz(func(t *testing.T, text string) {
		if k, is := parse(text); is && len(k.Process)+len(k.Group)+len(k.Limited) > len(text) {
			t.Errorf("%+v of %q", k, text)
		}
		name := strings.ReplaceAll(text, "\n", "") // the kernel writes it as \x0a
		want := Kill{Process: name, PID: 42, Group: "/kubepods/podu/abc", Limited: "/kubepods/podu"}
		if k, is := parse(strings.Replace(inPod, "stress", name, 1)); !is || k != want {
			t.Errorf("%q: %+v, %t", name, k, is)
		}
	})
}

// logOf returns a log that yields one record per read, as the kernel's device does, and its writing end.
func logOf(t *testing.T) (*Log, *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_DIRECT|unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	l, w := New("/nowhere"), os.NewFile(uintptr(fds[1]), "writer")
	l.file = os.NewFile(uintptr(fds[0]), "reader")
	t.Cleanup(func() { _ = w.Close() })
	return l, w
}

func TestKillsAreReportedOneByOne(t *testing.T) {
	l, w := logOf(t)
	for _, record := range []string{"6,1,1,-;eth0: up", inPod, "6,3,4,-;eth0: down", global} {
		if _, err := w.WriteString(record); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"stress", "a b"} {
		if got, err := l.Next(t.Context()); err != nil || got.Process != want {
			t.Errorf("%+v, %v, want %s", got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := w.WriteString(inPod); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Next(t.Context()); err != nil || got.PID != 42 {
		t.Errorf("after that: %+v, %v", got, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("a log that ends: %v", err)
	}
	if _, err := l.Next(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is opened again: %v", err)
	}
}
