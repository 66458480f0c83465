package pods

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// A pod of unknown state waits for the runtime while that is away, unless it has a reason of its own.
func TestPodReason_WhileRuntimeIsAway(t *testing.T) {
	away := messages.RuntimeStateChanged{Reason: messages.Reason{Code: messages.ReasonRuntimeUnavailable, Message: "refused"}}
	known := &v1.PodStatus{}
	for name, c := range map[string]struct {
		runtime messages.RuntimeStateChanged
		e       entry
		want    bool
	}{
		"new":        {away, entry{}, true},
		"read anew":  {away, entry{life: life{status: known, phase: "reading"}}, true},
		"runs":       {away, entry{life: life{status: known, phase: "running"}}, false},
		"says why":   {away, entry{life: life{waiting: &messages.Reason{Code: "x"}}}, false},
		"runtime up": {messages.RuntimeStateChanged{Ready: true}, entry{}, false},
	} {
		a := &actor{node: nodeState{runtime: c.runtime}}
		why := a.awaitsRuntime(&c.e)
		if (why != nil) != c.want || why != nil && (*why != c.runtime.Reason || why == &a.node.runtime.Reason) {
			t.Errorf("%s: %v", name, why)
		}
	}
}

// A burst of changes makes one snapshot. The delay grows with the number of pods.
func TestPublishing(t *testing.T) {
	p := publishState{pods: 100}
	first, plan := p.change()
	if _, again := p.change(); !plan || again || first != publishEvery+100*publishEach {
		t.Errorf("planned %t after %v, and again %t", plan, first, again)
	}
	p.due = false
	if _, plan := p.change(); !plan {
		t.Error("the next one is not planned")
	}
}

// A kept folder has one Event, even if its error changes, or if it is missing from a report and returns.
func TestHeldFolders_HaveOneEventEach(t *testing.T) {
	a := New(Options{Sources: []messages.Address{messages.File}, Board: board.New(), Dir: t.TempDir()})("pods").(*actor)
	k := supervisortest.New(t, messages.Pods, a)
	k.RunWork()
	events := func(errors ...string) (n int) {
		var m messages.FoldersHeld
		for _, text := range errors {
			m.Folders = append(m.Folders,
				messages.HeldFolder{Code: messages.HeldRemains, UID: "gone", Path: "/root/pods/gone", Error: text})
		}
		k.Take()
		k.Send(messages.Volumes, m)
		for _, e := range sent[messages.RecordEvent](k) {
			if e.Reason == messages.EventVolumeHeld {
				n++
			}
		}
		return n
	}
	for i, want := range []int{1, 0, 0} {
		if got := events(strings.Repeat("again ", i)); got != want {
			t.Errorf("report %d made %d Events, want %d", i, got, want)
		}
		events()
		k.Advance(time.Minute)
	}
	if len(a.publishing.held) > 0 || len(a.publishing.heldSeen) != 1 {
		t.Errorf("published is %v, and %d folders are remembered, want 1", a.publishing.held, len(a.publishing.heldSeen))
	}
	k.Advance(heldMemory + time.Second)
	if events(); len(a.publishing.heldSeen) > 0 {
		t.Errorf("%d folders are remembered, want none", len(a.publishing.heldSeen))
	}
	if got := events("later"); got != 1 {
		t.Errorf("its return after a long time made %d Events, want 1", got)
	}
}

// Kept folders of volumes are published with their pod, and each is reported by one Event.
func TestHeldFoldersArePublished(t *testing.T) {
	b := board.New()
	k := supervisortest.New(t, messages.Pods, New(Options{Sources: []messages.Address{messages.File}, Board: b, Dir: t.TempDir()})("pods"))
	k.RunWork()
	wants(k, messages.File, pod("web", "u1"))
	audit(k)
	k.Advance(sweepEvery)
	k.Take()
	folders := []messages.HeldFolder{
		{Code: messages.HeldData, UID: "u1", Plugin: "kubernetes.io~nfs", Path: "/root/pods/u1/volumes/kubernetes.io~nfs/v"},
		{Code: messages.HeldDevice, UID: "gone", Plugin: "kubernetes.io~csi", Path: "/root/pods/gone/volumeDevices/kubernetes.io~csi/v"},
	}
	for range 2 { // volumes repeats its report
		k.Send(messages.Volumes, messages.FoldersHeld{Folders: folders})
	}
	var of []string
	for _, e := range sent[messages.RecordEvent](k) {
		if e.Reason == messages.EventVolumeHeld {
			of = append(of, e.Object.Kind+" "+e.Object.Name)
		}
	}
	if strings.Join(of, ", ") != "Pod web, Node " {
		t.Errorf("Events were recorded of %q", of)
	}
	k.Advance(time.Second)
	now := b.Now()
	if len(now.Held) != 2 || len(now.Pods) != 1 || len(now.Pods[0].Held) != 1 || now.Pods[0].Held[0] != folders[0] {
		t.Errorf("published is %+v with %+v", now.Pods, now.Held)
	}
	k.Send(messages.Volumes, messages.FoldersHeld{})
	k.Advance(time.Second)
	if now := b.Now(); len(now.Held) > 0 || len(now.Pods[0].Held) > 0 {
		t.Errorf("published is %+v once nothing is held", now.Held)
	}
}
