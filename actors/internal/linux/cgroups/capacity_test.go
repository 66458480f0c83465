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

// Memory that a virtual machine gains or loses while it runs counts at the next reading.
func TestReadCapacity_MemoryChanges(t *testing.T) {
	procfs := t.TempDir()
	if err := os.MkdirAll(filepath.Join(procfs, "sys/kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(procfs, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sys/kernel/pid_max", "4000\n")
	write("sys/kernel/threads-max", "3000\n")
	for text, want := range map[string]int64{"MemTotal: 4096 kB\n": 4 << 20, "MemTotal: 8192 kB\n": 8 << 20} {
		write("meminfo", text)
		if got, err := ReadCapacity(t.TempDir(), procfs); err != nil || got.Memory != want || got.PIDs != 3000 {
			t.Errorf("%q: got %+v, %v, want %d bytes", text, got, err, want)
		}
	}
	write("meminfo", "")
	if got, err := ReadCapacity(t.TempDir(), procfs); err == nil {
		t.Errorf("without a total: got %+v, want an error", got)
	}
}
