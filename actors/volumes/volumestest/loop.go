package volumestest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// LoopDevice returns a loop device over a new file of 1 MiB, and the file. It skips the test if the machine has none. The device
// is released when the test ends, and has to be free then.
func LoopDevice(t *testing.T) (device, file string) {
	t.Helper()
	NeedMounts(t)
	file = filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	device, err := Losetup("--find", "--show", file)
	if err != nil {
		t.Skipf("no loop devices: %v: %s", err, device)
	}
	t.Cleanup(func() {
		if out, err := Losetup("--detach", device); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := Losetup("--associated", file); err != nil || out != "" {
			t.Errorf("the device is still open: %v: %s", err, out)
		}
	})
	return device, file
}

// Losetup runs losetup(8) and returns its output.
func Losetup(args ...string) (string, error) {
	out, err := exec.Command("losetup", args...).CombinedOutput() //nolint:noctx // it ends by itself
	return strings.TrimSpace(string(out)), err
}

// LoopsOver returns the loop devices over a file or a device.
func LoopsOver(t *testing.T, path string) []string {
	t.Helper()
	out, err := Losetup("--noheadings", "--output", "NAME,BACK-FILE", "--list")
	must(t, err)
	var loops []string
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == path {
			loops = append(loops, fields[0])
		}
	}
	return loops
}
