package explain

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

func TestHeld(t *testing.T) {
	lost := Held(messages.HeldFolder{Code: messages.HeldDevice, Plugin: "kubernetes.io~csi", Path: "/p"})
	if lost.Cause != "/p is a block device of kubernetes.io/csi, and no record names its driver: it is kept, and stays in use" {
		t.Errorf("of CSI: %+v", lost)
	}
	for code, want := range map[messages.HeldCode]string{
		messages.HeldData:   "/p holds data although no volume of kubernetes.io/nfs is mounted there: it is kept",
		messages.HeldDevice: "/p is a block device of kubernetes.io/nfs that a kubelet mapped: it is kept, and stays in use",
		messages.HeldMount:  "/p is mounted, and no record names its CSI driver: it is kept, and stays in use",
		messages.HeldDriver: "/p is a CSI volume, and a node without an API server has no drivers: it is kept",
		messages.HeldPlugin: "/p is a volume of kubernetes.io/nfs, which a kubelet mounted and Playlet cannot mount",
		messages.HeldStaged: "/p is a volume that no pod has any more and that could not be unstaged: it stays in use: " +
			"still mounted: /p/x",
		messages.HeldRemains: "/p of an ended pod could not be removed: it is kept: still mounted: /p/x",
	} {
		f := messages.HeldFolder{Code: code, Plugin: "kubernetes.io~nfs", Path: "/p", Error: "still mounted: /p/x"}
		got := Held(f)
		if got.Cause != want || got.Remedy == "" || got.Code != messages.EventVolumeHeld {
			t.Errorf("%s: got %+v, want %q", code, got, want)
		}
		p := &board.Pod{Pod: &v1.Pod{}, Status: &v1.PodStatus{Phase: v1.PodSucceeded}, Held: []messages.HeldFolder{f}}
		if e := Pod(p); len(e.Others) == 0 || e.Others[len(e.Others)-1].Cause != want {
			t.Errorf("%s: the pod is explained by %+v", code, e)
		}
		node := Node([]Check{{Name: "volumes", Notes: []string{want}}}, &board.Snapshot{Held: p.Held})
		if len(node.Others) != 1 || node.Others[0] != got {
			t.Errorf("%s: the node is explained by %+v, want %+v once", code, node.Others, got)
		}
		if all := HeldIn(&board.Snapshot{Held: p.Held}); strings.Join(all, " ") != want {
			t.Errorf("%s: all are %q", code, all)
		}
	}
}
