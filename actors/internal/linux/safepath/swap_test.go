package safepath

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const swaps = 3000

// swap exchanges a folder and a link to the outside repeatedly, like a hostile container, until the caller calls done.
func swap(t *testing.T, dir, link string) (done func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			// The exchange fails if the folder was just removed.
			_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func TestOpenUnderSwaps(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "outside")
	write(t, filepath.Join(r.Path(), "d/file"), "inside")
	must(t, os.Symlink(outside, filepath.Join(r.Path(), "l")))
	done := swap(t, filepath.Join(r.Path(), "d"), filepath.Join(r.Path(), "l"))
	defer done()
	opened := 0
	for range swaps {
		f, err := r.OpenBeneath("d/file", unix.O_RDONLY, 0)
		if err != nil {
			continue
		}
		opened++
		text, err := io.ReadAll(f)
		must(t, err)
		must(t, f.Close())
		if string(text) != "inside" {
			t.Fatalf("read %q", text)
		}
	}
	t.Logf("opened %d times of %d", opened, swaps)
}

func TestMkdirUnderSwaps(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	must(t, r.MkdirAll("d", 0o755))
	must(t, os.Symlink(outside, filepath.Join(r.Path(), "l")))
	done := swap(t, filepath.Join(r.Path(), "d"), filepath.Join(r.Path(), "l"))
	made := 0
	for i := range swaps {
		if r.MkdirAll("d/"+strconv.Itoa(i)+"/x", 0o755) == nil {
			made++
		}
	}
	done()
	t.Logf("made %d of %d", made, swaps)
	if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
		t.Errorf("outside has %d entries, %v", len(names), err)
	}
}

func TestRemoveUnderSwaps(t *testing.T) {
	r := openTemp(t)
	outside := t.TempDir()
	write(t, filepath.Join(outside, "file"), "")
	pod := filepath.Join(r.Path(), "pod")
	for range swaps / 10 {
		write(t, filepath.Join(pod, "d/file"), "")
		must(t, os.Symlink(outside, filepath.Join(pod, "l")))
		done := swap(t, filepath.Join(pod, "d"), filepath.Join(pod, "l"))
		err := RemoveAllOneFilesystem(t.Context(), r, "pod")
		done()
		if err != nil {
			must(t, RemoveAllOneFilesystem(t.Context(), r, "pod"))
		}
		if !exists(t, filepath.Join(outside, "file")) {
			t.Fatal("removed what is outside")
		}
	}
}
