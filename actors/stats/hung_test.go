package stats

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// A container may mount a file system in its volume, and the server of that file system may be hung.
func TestWalk_AsksNoServerOfOthers(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"v/remote", "v/own"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	s := fusetest.Mount(t, filepath.Join(dir, "v/remote"))
	s.Hang()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if sum, err := used(t.Context(), root, "v"); err != nil || sum.inodesUsed != 2 {
			t.Errorf("counted %d inodes, error %v, want 2 without that of the mount", sum.inodesUsed, err)
		}
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute): // only a hanging call takes so long
		s.Die()
		<-ended
		t.Error("the walk hangs with the server")
	}
}
