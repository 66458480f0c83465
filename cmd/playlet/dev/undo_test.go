package dev

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/progress"
)

// agentsSocket is a socket as an agent leaves it, with its lock, and as it has it while it lives.
func agentsSocket(t *testing.T) (path string, l net.Listener, lock *os.File) {
	t.Helper()
	path = filepath.Join(shortDir(t), "a.sock")
	l, err := net.Listen("unix", path)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	lock, err = os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	return path, l, lock
}

func TestAgentSocket_RemovedWhenUnused(t *testing.T) {
	path, l, lock := agentsSocket(t)
	if !listening(path) || listening(path+".lock") || listening(path+".none") {
		t.Error("who listens is not seen")
	}
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	stays := func(why string) {
		t.Helper()
		must(t, removeSocket(path))
		if !there(path) || !there(path+".lock") {
			t.Fatal("it is gone although " + why)
		}
	}
	stays("an agent has lock and socket")
	must(t, lock.Close())
	stays("somebody listens")
	must(t, l.Close())
	for range 2 {
		must(t, removeSocket(path))
		if there(path) || there(path+".lock") {
			t.Fatal("it is there")
		}
	}
}

// After a reboot only the files of a run exist; other objects with its names are not its own.
func TestOfAnotherBootOnlyFilesAreRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not tried: a folder in /run takes root")
	}
	running, err := os.MkdirTemp("/run", "playlet-dev-test-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(running)) })
	path, l, lock := agentsSocket(t)
	must(t, l.Close())
	must(t, lock.Close())
	top := t.TempDir()
	s := startSleep(t)
	init, err := identify(procDir, s.cmd.Process.Pid)
	must(t, err)
	record := goodRecord()
	record.Boot, record.Init, record.AdminSocket = "another", init, path
	record.Dir, record.Temporary = filepath.Join(top, "playlet-dev-abc234"), true
	record.Folders = []string{filepath.Join(top, "made"), running}
	write(t, filepath.Join(record.Dir, "x"), "")
	must(t, os.Mkdir(filepath.Join(top, "made"), 0o755))
	write(t, filepath.Join(record.Dir, markFile), record.ID)
	_, err = undo(record, "")
	must(t, err)
	if left := filesIn(t, top); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if !there(path) || !there(running) || s.hasEnded() {
		t.Error("socket, folder or process of this boot are gone")
	}
}

func TestRemainsOfKilledRun_UndoneFirst(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not tried: it takes root")
	}
	top := t.TempDir()
	dir := filepath.Join(top, "store")
	var out buffer
	p := progress.New(&out)
	s, left, err := begin(dir, p)
	if err != nil || left {
		t.Fatalf("%v, %v", left, err)
	}
	record := goodRecord()
	record.Boot, record.Dir, record.Folders, record.Outer.PID = "another", filepath.Join(top, "playlet-dev-abc234"), nil, 4711
	write(t, filepath.Join(record.Dir, "x"), "")
	write(t, filepath.Join(record.Dir, markFile), record.ID)
	must(t, s.save(record))
	must(t, s.close(false))

	s, left, err = begin(dir, p)
	if err != nil || !left || there(record.Dir) || there(s.path()) {
		t.Errorf("%v, %v; the folder is there: %v, the record: %v", left, err, there(record.Dir), there(s.path()))
	}
	if !strings.Contains(out.String(), "leftovers: removed what an earlier run (process 4711) had left") {
		t.Errorf("it says %q", out.String())
	}
	must(t, s.close(true))
}
