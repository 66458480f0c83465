package statefile

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A flush before the first change, as at the admission of a pod that needs nothing of the file, leaves the file as it is.
func TestFlush_BeforeAChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	open := func(want int) *File[int] {
		t.Helper()
		f, got, err := Open(Format[int]{Path: path, About: "numbers", Binding: true, Log: slog.New(slog.DiscardHandler),
			Encode: func(n int) ([]byte, error) { return []byte(strconv.Itoa(n)), nil },
			Decode: func(text []byte) (int, error) { return strconv.Atoi(string(text)) },
			Fits:   func(int) error { return nil }}, 1)
		if err != nil || got != want {
			t.Fatalf("opened with %d, %v, want %d", got, err, want)
		}
		return f
	}
	f := open(1)
	f.Set(7)
	for range 2 {
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		f.Close()
		f = open(7)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "7" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
