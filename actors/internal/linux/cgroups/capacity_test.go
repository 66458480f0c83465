package cgroups

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// OnlineCPUs does not depend on the CPU affinity of the process.
func TestOnlineCPUs(t *testing.T) {
	for text, want := range map[string]int{"0-2,5\n": 4, "0\n": 1, "": runtime.NumCPU(), "nonsense": runtime.NumCPU(),
		"none": runtime.NumCPU()} {
		sysfs := t.TempDir()
		if text != "none" {
			file := filepath.Join(sysfs, "devices/system/cpu/online")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := OnlineCPUs(sysfs).Size(); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
