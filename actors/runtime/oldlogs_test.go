package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Collection of a container removes its log and rotated files, and no other logs.
func TestTheLogGoesWithItsContainer(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1x", "a2r", "b0x")
	dir := t.TempDir()
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]bool{
		"a/0.log": false, "a/0.log.20260101-000000": false, "a/0.log.20260101-000000.gz": false,
		"a/1.log": true, "a/2.log": true, "a/10.log": true, "a/0.logs": true, "b/0.log": true,
	}
	for name := range want {
		write(filepath.Join(dir, "ns_name-u_u", name))
	}
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod = dir, time.Hour })
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"u": true}, Heard: true})
	r.work()
	f.took()
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers rm:u/s0/a0")
	for name, stays := range want {
		if _, err := os.Stat(filepath.Join(dir, "ns_name-u_u", name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A log that cannot be removed keeps its container, so that the removal is retried.
func TestALogThatStaysKeepsItsContainer(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1x")
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "0.log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "ns_name-u_u"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "ns_name-u_u", "a")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod = dir, time.Hour })
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"u": true}, Heard: true})
	r.work()
	f.took()
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers")
	if _, err := os.Stat(filepath.Join(outside, "0.log")); err != nil {
		t.Errorf("a link led out of the folder of logs: %v", err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers rm:u/s0/a0")
}

// If an attempt was repeated with the same number, the log belongs to the new container. An incompletely named container has no
// log.
func TestWhoseLogItIs(t *testing.T) {
	h := parse("u/s0/a0x u/s1/a0r u/s1/b0x")
	if got := logOf(h.Containers[0], h.Containers, nil); got != "" {
		t.Errorf("%s, which another writes", got)
	}
	both := map[string]bool{h.Containers[0].Id: true, h.Containers[1].Id: true}
	if got := logOf(h.Containers[0], h.Containers, both); got != "ns_name-u_u/a/0.log" {
		t.Errorf("%q", got)
	}
	for label := range h.Containers[2].Labels {
		was := h.Containers[2].Labels[label]
		delete(h.Containers[2].Labels, label)
		if got := logOf(h.Containers[2], h.Containers, nil); got != "" {
			t.Errorf("without the label %s: %q", label, got)
		}
		h.Containers[2].Labels[label] = was
	}
}

// TestCollectorKeepsFoldersOfOthers has files of users in podLogsDir: no folder is removed unless it holds nothing but logs.
func TestCollectorKeepsFoldersOfOthers(t *testing.T) {
	f := newFake()
	f.pod("dead", "a0x")
	f.sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	dir := t.TempDir()
	link := t.TempDir()
	want := map[string]bool{
		"ns_name_logs/c/0.log": false, "ns_name_rotated/c/12.log.20260101-000000.gz": false, "ns_name_two/c/0.log": false,
		"ns_name_two/d/1.log.tmp": false, "my_backup_2026/precious": true, "my_backup_2025/c/precious": true,
		"ns_name_deep/c/0.log/precious": true, "ns_name_mixed/c/0.log": true, "ns_name_mixed/c/notes.log": true,
		"ns_name_below/c/d/0.log": true, "ns_name_dead/precious": true, "a_dump_3": true, "ns_name_.hidden/c/0.log": true,
		"ns_name_-x/c/0.log": true, "ns_name_of link/c/0.log": true,
	}
	for name := range want {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ns_name_empty/c", "ns_name_emptier"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		want[name] = false
	}
	for _, name := range []string{"a_link_4", "ns_name_linked/c"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(link, path)); err != nil {
			t.Fatal(err)
		}
		want[name] = true
	}
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod = dir, time.Hour })
	r.Send("pods", messages.KeepContainers{Heard: true})
	for range 2 {
		r.work()
		r.Advance(time.Minute)
	}
	r.work()
	for name, stays := range want {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s is kept: %t, want %t", name, err == nil, stays)
		}
	}
	if len(f.sandboxes) > 0 || len(f.containers) > 0 {
		t.Errorf("a folder that is kept also keeps %v and %v", f.sandboxes, f.containers)
	}
}
