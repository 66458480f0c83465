package file

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/wholefile"
)

// TestAwait waits on another goroutine, so that what wakes it comes while it waits, or, as good, before.
func TestAwait(t *testing.T) {
	for name, inotify := range map[string]bool{"with inotify": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			w := newWatch()
			if inotify {
				must(t, w.open())
				defer w.close()
			}
			woken := make(chan changes)
			wait := func(ctx context.Context) { woken <- w.await(ctx) }
			for range 100 {
				go wait(t.Context())
				w.wake(true)
				if c := <-woken; !c.late || c.check {
					t.Fatalf("woken by %+v", c)
				}
				go wait(t.Context())
				w.wake(false)
				if c := <-woken; c.late || !c.check {
					t.Fatalf("woken by %+v", c)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go wait(ctx)
				cancel()
				if c := <-woken; !c.none() {
					t.Fatalf("woken by %+v", c)
				}
			}
		})
	}
}

func TestAwaitSeesWhatHappens(t *testing.T) {
	dir := t.TempDir()
	w := newWatch()
	must(t, w.open())
	defer w.close()
	w.begin()
	must(t, w.folder(dir))
	w.end()
	woken := make(chan changes)
	for range 100 {
		go func() { woken <- w.await(t.Context()) }()
		must(t, os.WriteFile(filepath.Join(dir, ".a"), nil, 0o600))
		must(t, os.Rename(filepath.Join(dir, ".a"), filepath.Join(dir, "a")))
		if c := <-woken; !c.names["a"] || c.structure || len(c.names) > 1 {
			t.Fatalf("saw %+v", c)
		}
	}
	go func() { woken <- w.await(t.Context()) }()
	w.close()
	if c := <-woken; !c.none() {
		t.Fatalf("woken by %+v", c)
	}
	if err := w.open(); err != nil || w.file == nil {
		t.Fatal("closing is for good")
	}
	w.begin()
	if err := w.folder(dir); err != nil {
		t.Fatalf("a closed watch complains: %v", err)
	}
	w.end()
}

func TestWhatHasNoReasonIsNoLongerWatched(t *testing.T) {
	dir := t.TempDir()
	w := newWatch()
	must(t, w.open())
	defer w.close()
	w.begin()
	must(t, w.folder(dir))
	w.end()
	w.begin()
	w.end()
	if len(w.interests) != 0 {
		t.Fatalf("has interests %v", w.interests)
	}
	w.begin()
	must(t, w.follow(dir, "on-the-way"))
	w.end()
	must(t, os.WriteFile(filepath.Join(dir, "another"), nil, 0o600))
	if c := w.collect(t.Context(), false); !c.none() {
		t.Fatalf("saw %+v", c)
	}
	must(t, os.Mkdir(filepath.Join(dir, "on-the-way"), 0o700))
	if c := w.collect(t.Context(), false); !c.structure {
		t.Fatalf("saw %+v", c)
	}
}

func TestEventsThatAreCutOffCountAsLost(t *testing.T) {
	w := newWatch()
	buf := make([]byte, unix.SizeofInotifyEvent)
	buf[12] = 16 // bytes of a name that is not there
	var c changes
	w.decode(buf, &c)
	if !c.lost {
		t.Fatal("nothing is known to be lost")
	}
}

func TestAFileReadJustAfterItWasTouchedIsNotTrusted(t *testing.T) {
	at := time.Unix(1000, 0)
	for age, want := range map[time.Duration]bool{0: false, trustAfter - 1: false, trustAfter: true, -time.Hour: false} {
		m := &entry{last: &version{}, readAt: at.Add(age),
			id: wholefile.Identity{Modified: [2]int64{900, 0}, Changed: [2]int64{1000, 0}}}
		if m.trusted() != want {
			t.Errorf("read %v after it was touched: trusted %v, want %v", age, m.trusted(), want)
		}
	}
	if (&entry{readAt: at}).trusted() {
		t.Error("one that could not be read is trusted")
	}
}
