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

// A pod of which nothing is known yet waits for the runtime while that is away, and for nothing else that it does not say.
func TestWhatAPodAwaitsWhileTheRuntimeIsAway(t *testing.T) {
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
		a := &actor{node: observed{runtime: c.runtime}}
		why := a.awaitsRuntime(&c.e)
		if (why != nil) != c.want || why != nil && (*why != c.runtime.Reason || why == &a.node.runtime.Reason) {
			t.Errorf("%s: %v", name, why)
		}
	}
}

// A burst of changes makes one snapshot, the later the more pods there are.
func TestPublishing(t *testing.T) {
	p := publishing{pods: 100}
	first, plan := p.change()
	if _, again := p.change(); !plan || again || first != publishEvery+100*publishEach {
		t.Errorf("planned %t after %v, and again %t", plan, first, again)
	}
	p.due = false
	if _, plan := p.change(); !plan {
		t.Error("the next one is not planned")
	}
}

// Folders of volumes that are kept are published with their pod, and each is reported by one Event.
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
	for range 2 { // volumes repeats it
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
