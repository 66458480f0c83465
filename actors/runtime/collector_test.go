package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func TestCollector(t *testing.T) {
	f := newFake()
	f.pod("u", "a0x", "a1x", "a2r")
	f.pod("gone", "b0x")
	f.sandboxes[1].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	f.pod("back", "c0x")
	dir := t.TempDir()
	for _, name := range []string{"ns_name_u", "ns_name_gone", "ns_name_back", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "c"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod = dir, time.Hour })
	r.Advance(time.Minute)
	r.work()
	r.expect("before pods has told who is wanted", f.took(), "")
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"u": true}, Heard: true})
	r.Send("pods/back", messages.ReadPod{UID: "back"}) // newer than that message
	r.work()
	if got := f.took(); !strings.HasSuffix(got, ":back rm:gone/s0/b0 containers stopp:gone/s0 rmp:gone/s0") {
		t.Errorf("as soon as it is known who is wanted, what nobody wants goes: %s", got)
	}
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers rm:u/s0/a0")
	for name, want := range map[string]bool{"ns_name_u": true, "ns_name_gone": false, "ns_name_back": true, "other": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("log folder %s: %v", name, err)
		}
	}
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"u": true, "back": true}, Heard: true})
	r.Advance(time.Minute)
	r.work()
	r.expect("nothing is left to do", f.took(), "sandboxes containers")
}

func TestCollectorKeepsWhatItCannotRemove(t *testing.T) {
	f := newFake()
	f.pod("gone", "b0x")
	f.sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ns_name_gone"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod, o.NodeName = dir, time.Hour, "n" })
	f.fail("rm", errors.New("busy"))
	r.Send("pods", messages.KeepContainers{Heard: true})
	r.work()
	recorded := slices.ContainsFunc(r.Take(), func(m supervisortest.SentMessage) bool {
		e, ok := m.Msg.(messages.RecordEvent)
		return ok && e.Reason == messages.EventContainerGCFailed && e.Object.Kind == "Node" && e.Object.Name == "n" && e.Message == "busy"
	})
	if !recorded {
		t.Error("the failed collection has no Event")
	}
	if got := f.took(); !strings.HasSuffix(got, "rm:gone/s0/b0") {
		t.Errorf("calls %s", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "ns_name_gone")); err != nil {
		t.Error(err)
	}
	f.fail("rm", nil)
	r.Advance(time.Minute)
	r.work()
	r.expect("calls", f.took(), "sandboxes containers rm:gone/s0/b0 containers stopp:gone/s0 rmp:gone/s0")
}

func TestCollector_ReadsAReturningPodAfterCleanup(t *testing.T) {
	f := newFake()
	f.pod("gone", "b0x")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = time.Hour })
	r.Send("pods", messages.KeepContainers{Heard: true})
	r.Advance(time.Minute)
	r.RunOne(r.take("survey"))
	removal := r.take("remove the remains of pod gone")
	r.work()
	r.sent()
	r.Send("pods/gone", messages.ReadPod{UID: "gone"})
	if len(r.Work) != 0 {
		t.Fatalf("read while its remains are removed: %+v", r.Work)
	}
	r.RunOne(removal)
	r.work()
	r.expect("told", r.sent(), "gone[10.0.0.1]")
}

// Eviction's request is served and answered at once, and includes the last dead containers of pods that are over, but not of one
// whose final status is not on disk yet, or that began again after it was over.
func TestReclaim(t *testing.T) {
	f := newFake()
	f.pod("over", "a0x")
	f.pod("runs", "b0x", "b1r")
	f.pod("unrecorded", "c0x")
	f.pod("new", "d0x")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = time.Hour })
	answer := func() (out []messages.ContainersReclaimed) {
		for _, s := range r.Take() {
			if m, ok := s.Msg.(messages.ContainersReclaimed); ok && s.To == messages.Eviction {
				out = append(out, m)
			}
		}
		return out
	}
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"over": true, "runs": true, "unrecorded": true, "new": true},
		Over: map[string]bool{"over": true, "new": true}, Heard: true})
	r.Send("pods/new", messages.ReadPod{UID: "new"})
	r.work()
	f.took()
	r.Take()
	r.Send(messages.Eviction, messages.ReclaimContainers{})
	r.work()
	if got := f.took(); !strings.HasSuffix(got, "sandboxes containers rm:over/s0/a0") {
		t.Errorf("calls %s", got)
	}
	if got := answer(); len(got) != 1 || got[0].Removed != 1 || got[0].Problem != "" {
		t.Errorf("answered %+v", got)
	}
	f.fail("containers", errors.New("away"))
	r.Send(messages.Eviction, messages.ReclaimContainers{})
	r.RunOne(r.take("survey"))
	if got := answer(); len(got) != 1 || got[0].Problem == "" {
		t.Errorf("of a runtime that is away: %+v", got)
	}
}

// The freed bytes of logs are reported: a dead container's log with its rotated files, and the whole folder of a pod that is
// gone. The target of a link there does not count.
func TestWhatAReclaimFreed(t *testing.T) {
	f := newFake()
	f.pod("over", "a0x")
	f.pod("gone", "b0x")
	f.sandboxes[1].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	dir := t.TempDir()
	r := settledRig(t, f, func(o *Options) { o.PodLogsDir, o.PollPeriod = dir, time.Hour })
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"over": true, "gone": true}, Heard: true})
	r.work()
	for name, size := range map[string]int{"ns_name-over_over/a/0.log": 100 << 10, "ns_name-over_over/a/0.log.20260101-000000.gz": 50 << 10,
		"ns_name-over_over/a/1.log": 1 << 20, "ns_name-gone_gone/b/0.log": 200 << 10, "elsewhere": 4 << 20} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../elsewhere", filepath.Join(dir, "ns_name-gone_gone/b/1.log")); err != nil {
		t.Fatal(err)
	}
	r.Take()
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"over": true}, Over: map[string]bool{"over": true}, Heard: true})
	r.Send(messages.Eviction, messages.ReclaimContainers{})
	r.work()
	var got []messages.ContainersReclaimed
	for _, s := range r.Take() {
		if m, ok := s.Msg.(messages.ContainersReclaimed); ok {
			got = append(got, m)
		}
	}
	if len(got) != 1 || got[0].Freed < 350<<10 || got[0].Freed > 400<<10 {
		t.Errorf("told %+v", got)
	}
}

// A reclaim requested while the runtime is away, as after a restart of the actor, begins when it answers.
func TestAReclaimBeforeTheRuntimeAnswers(t *testing.T) {
	f := newFake()
	f.pod("over", "a0x")
	r := start(t, f, func(o *Options) { o.PollPeriod = time.Hour })
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"over": true}, Over: map[string]bool{"over": true}, Heard: true})
	r.Send(messages.Eviction, messages.ReclaimContainers{})
	r.work()
	if got := f.took(); !strings.Contains(got, "rm:over/s0/a0") {
		t.Errorf("calls %s", got)
	}
}

// A reclaim requested before the desired pods are known removes dead containers too, not only remains of gone pods.
func TestAReclaimBeforeAllIsKnown(t *testing.T) {
	f := newFake()
	f.pod("over", "a0x")
	r := settledRig(t, f, func(o *Options) { o.PollPeriod = time.Hour })
	f.took()
	r.Send(messages.Eviction, messages.ReclaimContainers{})
	r.work()
	r.Send("pods", messages.KeepContainers{Wanted: map[string]bool{"over": true}, Over: map[string]bool{"over": true}, Heard: true})
	r.work()
	if got := f.took(); !strings.Contains(got, "rm:over/s0/a0") {
		t.Errorf("calls %s", got)
	}
}
