//go:build e2e

package machine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// commandLimit bounds waits for programs of the guest.
const commandLimit = 20 * time.Minute

func TestMain(m *testing.M) { os.Exit(machine.Main(m.Run)) }

// A machine has systemd as PID 1, cgroup v2 alone and a containerd; files go in and out; it reboots, and goes off and on.
func TestMachine(t *testing.T) { machine.Each(t, testMachine) }

func testMachine(t *testing.T, release install.Release) {
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "given"), []byte("from outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := machine.Boot(t, machine.Options{Release: release, Files: files})
	if folders, err := filepath.Glob(filepath.Join(isolate.Dir(), "machine*")); err != nil || len(folders) != 1 {
		t.Errorf("folders of machines, which Main removes when a test is interrupted: %q, %v; want one", folders, err)
	}
	welcomes := func() int { return strings.Count(m.Console(), "Welcome to ") }
	booted := welcomes()
	for command, want := range map[string]string{
		"cat /proc/1/comm":           "systemd",
		"stat -fc %T /sys/fs/cgroup": "cgroup2fs",
		"cat /srv/files/given":       "from outside",
		"cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
	} {
		if got := m.Must(command); got != want {
			t.Errorf("%s gives %q, want %q", command, got, want)
		}
	}
	m.Await(commandLimit, "ctr version", nil)
	r, err := m.Run(t.Context(), "echo out; echo err >&2; exit 3")
	if err != nil || r.Stdout != "out\n" || r.Stderr != "err\n" || r.Code != 3 {
		t.Errorf("a command gives %+v, %v", r, err)
	}
	if err := m.Write(t.Context(), "/srv/a folder/it's", "text", 0o640); err != nil {
		t.Fatal(err)
	}
	if got := m.Must("stat -c '%a %s' '/srv/a folder/'*"); got != "640 4" {
		t.Errorf("the written file has mode and size %q", got)
	}
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Get(t.Context(), "/srv/a folder/it's"); err != nil || got != "text" {
		t.Errorf("after a reboot and a boot the file has %q, %v", got, err)
	}
	if boots := welcomes() - booted; boots != 2 {
		t.Errorf("the console shows %d further boots, want 2", boots)
	}
}
