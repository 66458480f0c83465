package wholefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestBusyWithoutLeases asks about a folder, for which the kernel gives no leases.
func TestBusyWithoutLeases(t *testing.T) {
	f, err := os.Open(t.TempDir())
	must(t, err)
	defer closeRead(f)
	info, err := f.Stat()
	must(t, err)
	id := IdentityOf(info)
	for _, test := range []struct {
		done bool
		age  time.Duration
		want bool
	}{
		{false, 0, true}, {false, Quiet - 1, true}, {false, Quiet, false}, {true, 0, false},
		{false, -time.Hour, false}, // a clock that was set back must not make all files busy
	} {
		if got := (Reading{Done: test.done, Now: id.Touched().Add(test.age)}).busy(f.Fd(), id); got != test.want {
			t.Errorf("a writer heard to be done: %v, %v ago: busy %v, want %v", test.done, test.age, got, test.want)
		}
	}
}

func TestRead_BoundsAGrowingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, make([]byte, MaxBytes+1), 0o600))
	f, err := os.Open(path)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	if _, err := readAll(f); err != errTooLarge {
		t.Fatalf("got %v", err)
	}
	must(t, os.Truncate(path, MaxBytes))
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	if data, err := readAll(f); err != nil || len(data) != MaxBytes {
		t.Fatalf("got %d bytes, %v", len(data), err)
	}
}
