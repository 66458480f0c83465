package cgroups_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
)

const (
	busSocket = "/run/playlet-test-bus"
	busConfig = `<busconfig><type>system</type><listen>unix:path=` + busSocket + `</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow own="*"/><allow receive_sender="*"/></policy></busconfig>`
)

// TestWithASystemdOnTheBus checks the systemd driver over a real D-Bus. The driver requests a slice for the pod's group, with
// the limits as its properties. The machine's own hierarchies contain the group and its values. systemd is a fake of its
// interface (org.freedesktop.systemd1.Manager), because the test environment does not run systemd.
func TestWithASystemdOnTheBus(t *testing.T) {
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("no dbus-daemon (Debian: dbus-daemon)")
	}
	withOwnMounts(t, withSystemd, "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+busSocket)
}

func withSystemd(t *testing.T) {
	manager := startSystemd(t)
	var host cgroups.Host
	root := cgroups.ParseName(fmt.Sprintf("/playlettest%d", os.Getpid()))
	pod := cgroups.PodName(root, "Burstable", "u-1")
	slice := filepath.Base(pod.Systemd())
	for range 2 { // the group exists the second time
		must(t, "apply", host.Apply(pod, true, cgroups.Values{CPUShares: 512, CPUQuota: 50_000, CPUPeriod: 100_000,
			Memory: 64 << 20, PIDs: 100}))
	}
	defer func() { _ = host.Remove(pod, true) }() // already removed, unless the test has failed
	manager.mu.Lock()
	got := manager.units[slice]
	manager.mu.Unlock()
	want := map[string]any{"CPUShares": uint64(512), "CPUQuotaPerSecUSec": uint64(500_000), "MemoryLimit": uint64(64 << 20),
		"TasksMax": uint64(100)}
	if _, unified := got["CPUWeight"]; unified {
		want = map[string]any{"CPUWeight": uint64(20), "CPUQuotaPerSecUSec": uint64(500_000), "MemoryMax": uint64(64 << 20),
			"TasksMax": uint64(100)}
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s has %s = %v, want %v", slice, name, got[name], value)
		}
	}
	if got["Wants"] == nil || fmt.Sprint(got["Wants"]) != fmt.Sprint([]string{filepath.Base(filepath.Dir(pod.Systemd()))}) {
		t.Errorf("%s is in %v", slice, got["Wants"])
	}
	if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", pod.Systemd(), "memory.limit_in_bytes")); err == nil &&
		strings.TrimSpace(string(text)) != fmt.Sprint(64<<20) {
		t.Errorf("the kernel's limit is %s", text)
	}
	if names, err := host.Children(cgroups.ClassName(root, "Burstable"), true); err != nil || !slices.Contains(names, slice) {
		t.Errorf("children %v, %v", names, err)
	}
	must(t, "remove", host.Remove(pod, true))
	if names, err := host.Children(cgroups.ClassName(root, "Burstable"), true); err != nil || len(names) > 0 {
		t.Errorf("after the end there are %v, %v", names, err)
	}
	must(t, "remove its class", host.Remove(cgroups.ClassName(root, "Burstable"), true))
	must(t, "remove the root", host.Remove(root, true))
	manager.mu.Lock()
	defer manager.mu.Unlock()
	if manager.units[slice] != nil {
		t.Error("systemd still has its slice")
	}
}

// TestSystemd_ForgedEndsOfJobs checks that forged signals are harmless: any local user may send the signal that ends a job.
func TestSystemd_ForgedEndsOfJobs(t *testing.T) {
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("no dbus-daemon (Debian: dbus-daemon)")
	}
	withOwnMounts(t, withLiar, "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+busSocket)
}

func withLiar(t *testing.T) {
	manager := startSystemd(t)
	liar, err := dbus.Connect("unix:path=" + busSocket)
	must(t, "connect", err)
	t.Cleanup(func() { _ = liar.Close() })
	var host cgroups.Host
	root := cgroups.ParseName(fmt.Sprintf("/playlettest%d", os.Getpid()))
	for _, lie := range []string{"failed", "canceled", "done"} {
		manager.mu.Lock()
		manager.liar, manager.lie = liar, lie
		manager.mu.Unlock()
		pod := cgroups.PodName(root, "Burstable", lie)
		must(t, "apply in spite of "+lie, host.Apply(pod, true, cgroups.Values{CPUShares: 512}))
		manager.mu.Lock()
		if manager.units[filepath.Base(pod.Systemd())] == nil {
			t.Errorf("after a forged %q the slice is missing", lie)
		}
		manager.liar = nil
		manager.mu.Unlock()
		must(t, "remove", host.Remove(pod, true))
	}
	must(t, "remove its class", host.Remove(cgroups.ClassName(root, "Burstable"), true))
	must(t, "remove the root", host.Remove(root, true))
}

// systemd fakes the part of org.freedesktop.systemd1.Manager that the driver uses: units with properties.
type systemd struct {
	conn  *dbus.Conn
	mu    sync.Mutex
	units map[string]map[string]any
	jobs  uint32
	liar  *dbus.Conn // sends a forged end of each job before the real one; nil: none
	lie   string     // the forged result
}

type property struct {
	Name  string
	Value dbus.Variant
}

// startSystemd starts the fake systemd on its own bus, in its own /run.
func startSystemd(t *testing.T) *systemd {
	t.Helper()
	must(t, "mount /run", syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	must(t, "the sign of systemd", os.MkdirAll("/run/systemd/system", 0o755))
	must(t, "configuration", os.WriteFile("/run/bus.conf", []byte(busConfig), 0o600))
	daemon := exec.CommandContext(t.Context(), "dbus-daemon", "--config-file=/run/bus.conf", "--nofork", "--nopidfile")
	must(t, "dbus-daemon", daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	var conn *dbus.Conn
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if conn, err = dbus.Connect("unix:path=" + busSocket); err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := &systemd{conn: conn, units: map[string]map[string]any{}}
	must(t, "export", conn.Export(s, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"))
	must(t, "export", conn.Export(properties{}, "/org/freedesktop/systemd1", "org.freedesktop.DBus.Properties"))
	if reply, err := conn.RequestName("org.freedesktop.systemd1", dbus.NameFlagDoNotQueue); err != nil ||
		reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("the name: %v, %v", reply, err)
	}
	return s
}

type properties struct{}

// Get implements org.freedesktop.DBus.Properties.Get.
func (properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	if name != "Version" {
		return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no property %s", name))
	}
	return dbus.MakeVariant("252"), nil
}

// Subscribe implements org.freedesktop.systemd1.Manager.Subscribe.
func (s *systemd) Subscribe() *dbus.Error { return nil }

// StartTransientUnit implements org.freedesktop.systemd1.Manager.StartTransientUnit.
func (s *systemd) StartTransientUnit(name, _ string, properties []property, _ []struct {
	Name       string
	Properties []property
}) (dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[name] != nil {
		return "", dbus.NewError("org.freedesktop.systemd1.UnitExists", []any{"Unit " + name + " already exists."})
	}
	s.units[name] = map[string]any{}
	s.set(name, properties)
	return s.job(name), nil
}

// SetUnitProperties implements org.freedesktop.systemd1.Manager.SetUnitProperties.
func (s *systemd) SetUnitProperties(name string, _ bool, properties []property) *dbus.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[name] == nil {
		return dbus.NewError("org.freedesktop.systemd1.NoSuchUnit", []any{"Unit " + name + " not loaded."})
	}
	s.set(name, properties)
	return nil
}

// StopUnit implements org.freedesktop.systemd1.Manager.StopUnit.
func (s *systemd) StopUnit(name, _ string) (dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.units, name)
	return s.job(name), nil
}

// ResetFailedUnit implements org.freedesktop.systemd1.Manager.ResetFailedUnit.
func (s *systemd) ResetFailedUnit(string) *dbus.Error { return nil }

func (s *systemd) set(name string, properties []property) {
	for _, p := range properties {
		s.units[name][p.Name] = p.Value.Value()
	}
}

// job starts a job that ends after 10 ms, when its caller has received the path.
func (s *systemd) job(unit string) dbus.ObjectPath {
	s.jobs++
	id, path := s.jobs, dbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", s.jobs))
	if s.liar != nil {
		_ = s.liar.Emit("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager.JobRemoved", id, path, unit, s.lie)
	}
	time.AfterFunc(10*time.Millisecond, func() {
		_ = s.conn.Emit("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager.JobRemoved", id, path, unit,
			"done") // fails only if the connection is lost
	})
	return path
}
