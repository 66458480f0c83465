package dirwatch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, places Places) *Watch {
	t.Helper()
	w := New()
	must(t, w.Open())
	t.Cleanup(w.Close)
	if fresh, problems := w.Cover(places); fresh != (len(places) > 0) || len(problems) > 0 {
		t.Fatalf("covered: %v, %v", fresh, problems)
	}
	return w
}

// TestAwait waits on another goroutine, so that the wake-up comes before or during the wait.
func TestAwait(t *testing.T) {
	for name, w := range map[string]*Watch{"with inotify": opened(t, nil), "without": New()} {
		t.Run(name, func(t *testing.T) {
			woken := make(chan Changes)
			wait := func(ctx context.Context) { woken <- w.Await(ctx) }
			for range 100 {
				go wait(t.Context())
				w.Wake(true)
				if c := <-woken; !c.Late || c.Check {
					t.Fatalf("woken by %+v", c)
				}
				go wait(t.Context())
				w.Wake(false)
				if c := <-woken; c.Late || !c.Check {
					t.Fatalf("woken by %+v", c)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go wait(ctx)
				cancel()
				if c := <-woken; !c.None() {
					t.Fatalf("woken by %+v", c)
				}
			}
		})
	}
}

func TestAwaitSeesWhatHappens(t *testing.T) {
	dir := t.TempDir()
	places := Places{}
	places.Folder(dir)
	w := opened(t, places)
	woken := make(chan Changes)
	for range 100 {
		go func() { woken <- w.Await(t.Context()) }()
		must(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
		seen := false
		for !seen {
			c := <-woken
			if seen = c.Written["a"]; !seen {
				go func() { woken <- w.Await(t.Context()) }()
			}
		}
		w.Collect()
	}
	must(t, os.Remove(filepath.Join(dir, "a")))
	if c := w.Collect(); !c.Deleted["a"] || c.Written["a"] {
		t.Fatalf("saw %+v", c)
	}
	must(t, os.Remove(dir))
	if c := w.Collect(); !c.Seen {
		t.Fatal("the folder went unseen")
	}
	if fresh, problems := w.Cover(places); fresh || len(problems) > 0 {
		t.Fatalf("a folder that is not there: %v, %v", fresh, problems)
	}
	w.Close()
	if err := w.Open(); err != nil || w.file != nil {
		t.Fatal("closing is for good")
	}
	if fresh, problems := w.Cover(places); fresh || len(problems) > 0 {
		t.Fatalf("a closed watch complains: %v, %v", fresh, problems)
	}
}

func TestOnlyNamesThatMatterAreSeen(t *testing.T) {
	dir := t.TempDir()
	places := Places{}
	places.Folder(dir)
	w := opened(t, places)
	if fresh, _ := w.Cover(places); fresh {
		t.Error("what was watched is fresh")
	}
	places.Way(filepath.Join(dir, "one"))
	if fresh, _ := w.Cover(Places{dir: places[dir]}); fresh {
		t.Error("a name in a folder that is watched is fresh")
	}
	places = Places{}
	places.Way(filepath.Join(dir, "below", "file"))
	if fresh, _ := w.Cover(places); !fresh {
		t.Error("folders above were not watched before")
	}
	must(t, os.WriteFile(filepath.Join(dir, "another"), nil, 0o600))
	if c := w.Collect(); !c.None() {
		t.Fatalf("saw %+v", c)
	}
	must(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	if c := w.Collect(); !c.Seen || len(c.Written) > 0 {
		t.Fatalf("saw %+v", c)
	}
	w.Cover(nil)
	must(t, os.Remove(filepath.Join(dir, "below")))
	if c := w.Collect(); !c.None() {
		t.Fatalf("saw %+v", c)
	}
}

// A name that comes back after its file was moved to another folder was deleted in between; one that was moved within the folder
// was not. Two events may be read apart.
func TestWatch_MovesAway(t *testing.T) {
	dir, away := t.TempDir(), t.TempDir()
	places := Places{}
	places.Folder(dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, apart := range []bool{false, true} {
		w := opened(t, places)
		deleted := map[string]bool{}
		collect := func() { maps.Copy(deleted, w.Collect().Deleted) }
		for _, step := range []func() error{
			func() error { return errors.Join(os.WriteFile(in("a"), nil, 0o600), os.WriteFile(in("b"), nil, 0o600)) },
			func() error { return os.Rename(in("a"), filepath.Join(away, "a")) },
			func() error { return os.Rename(filepath.Join(away, "a"), in("a")) },
			func() error { return os.Rename(in("b"), in("b~")) },
			func() error { return os.WriteFile(in("b"), nil, 0o600) },
			func() error { return os.WriteFile(in("new"), nil, 0o600) },
			func() error { return os.Rename(in("new"), in("b")) },
		} {
			if must(t, step()); apart {
				collect()
			}
		}
		if collect(); !maps.Equal(deleted, map[string]bool{"a": true}) || len(w.moved) > 0 {
			t.Errorf("read apart: %v: got deleted %v, want a; %d open moves, want 0", apart, deleted, len(w.moved))
		}
	}
}

func TestEventsThatAreCutOffCountAsLost(t *testing.T) {
	buf := make([]byte, unix.SizeofInotifyEvent)
	buf[12] = 16 // bytes of a name that is not there
	var c Changes
	if New().decode(buf, &c); !c.Lost {
		t.Fatal("nothing is known to be lost")
	}
}

func isClosed(w *Watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// TestALoopOfLinksHasAnEnd: where the kernel goes no further, nothing more is watched.
func TestALoopOfLinksHasAnEnd(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("b/x", filepath.Join(dir, "a")))
	must(t, os.Symlink("a/x", filepath.Join(dir, "b")))
	must(t, os.Symlink("long"+strings.Repeat("/long", 500), filepath.Join(dir, "long")))
	places := Places{}
	for _, name := range []string{"a", "long"} {
		if at := places.Follow(filepath.Join(dir, name)); filepath.Dir(at) != dir {
			t.Errorf("%s leads %d folders away", name, strings.Count(at, "/"))
		}
	}
	if names := places[dir]; len(names) != 3 || len(places) != strings.Count(dir, "/")+1 {
		t.Errorf("watched are %d names of %d folders", len(names), len(places))
	}
}

// TestNobodyWaitsForAFileSystemThatHangs: actors wake, and close, while a folder is being watched that does not answer.
func TestNobodyWaitsForAFileSystemThatHangs(t *testing.T) {
	dir := t.TempDir()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no file system can be made that hangs: %v", err)
	}
	defer func() { _ = unix.Close(server) }()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)
	if err := unix.Mount("hangs", dir, "fuse", 0, options); err != nil {
		t.Skipf("no file system can be mounted that hangs: %v", err)
	}
	request := make([]byte, 1<<20)
	if _, err := unix.Read(server, request); err != nil { // FUSE_INIT, answered with version 7.31
		t.Fatal(err)
	}
	answer := make([]byte, 16+64)
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	copy(answer[8:16], request[8:16])
	binary.NativeEndian.PutUint32(answer[16:], 7)
	binary.NativeEndian.PutUint32(answer[20:], 31)
	if _, err := unix.Write(server, answer); err != nil {
		t.Fatal(err)
	}
	w := New()
	if err := w.Open(); err != nil {
		t.Fatal(err)
	}
	covered := make(chan struct{})
	go func() {
		defer close(covered)
		w.Cover(Places{filepath.Join(dir, "manifests"): {all: true}})
	}()
	if _, err := unix.Read(server, request); err != nil { // the look at the folder, which is never answered
		t.Error(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		go w.Close() // it blocks until the file system answers
		for !isClosed(w) {
			time.Sleep(time.Millisecond)
		}
		w.Wake(false)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Error("who wakes waits for the file system")
	}
	if err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
	<-covered
	<-done
	w.Close()
}
