package persistent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
)

// A folder that is absent is no error. An absence within a folder does not hide another error.
func TestEachLocal_Errors(t *testing.T) {
	dir, busy := t.TempDir(), errors.New("busy")
	fails := func(*safepath.Root) error { return errors.Join(fs.ErrNotExist, busy) }
	if err := eachLocal(dir, fails); err != nil {
		t.Errorf("without folders: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "plugins", localName, csi.DevicesFolder), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := eachLocal(dir, fails); !errors.Is(err, busy) {
		t.Errorf("got %v, want %v", err, busy)
	}
}
