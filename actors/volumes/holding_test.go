package volumes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/playlet-dev/playlet/messages"
)

// reported does all work and returns the last report of kept folders; nil: there was none.
func (n *node) reported() (last *messages.FoldersHeld) {
	n.Settle(false)
	for _, sent := range n.Take() {
		if m, ok := sent.Msg.(messages.FoldersHeld); ok && sent.To == messages.Pods {
			last = &m
		}
	}
	return last
}

// Kept folders are reported at the first sweep, when a folder cannot be removed, and when that has ended.
func TestHeldFoldersAreReported(t *testing.T) {
	n := newNode(t)
	folder := n.pod("a/volumes/kubernetes.io~nfs/pv")
	writeData(t, filepath.Join(folder, "precious"))
	report := n.reported
	want := []messages.HeldFolder{{Code: messages.HeldData, UID: "a", Plugin: "kubernetes.io~nfs", Path: folder}}
	n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{"a": true}})
	if got := report(); got == nil || !slices.Equal(got.Folders, want) {
		t.Errorf("the first sweep reported %+v, want %+v", got, want)
	}
	n.restart(t)
	n.Send(messages.PodAddress("a"), messages.UnmountVolumes{UID: "a", Remove: true})
	if got := report(); got == nil || len(got.Folders) != 2 || got.Folders[1] != want[0] {
		t.Errorf("a failed removal reported %+v, want %+v", got, want)
	}
	must(t, os.RemoveAll(folder))
	n.Send(messages.PodAddress("a"), messages.UnmountVolumes{UID: "a", Remove: true})
	if got := report(); got == nil || len(got.Folders) > 0 {
		t.Errorf("once the folder is gone %+v was reported", got)
	}
}
