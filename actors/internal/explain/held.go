package explain

import (
	"fmt"
	"strings"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// Held explains a folder that the agent cannot undo and keeps.
func Held(f messages.HeldFolder) Finding {
	kind := strings.ReplaceAll(f.Plugin, "~", "/")
	out := Finding{Code: messages.EventVolumeHeld}
	switch f.Code {
	case messages.HeldData:
		volume := "volume of " + kind
		if kind == "" {
			volume = "part of a volume (subPath)"
		}
		out.Cause = fmt.Sprintf("%s holds data although no %s is mounted there: it is kept", f.Path, volume)
		out.Remedy = "find out why the volume is not mounted there, and move the data away: " +
			"the folder of an ended pod is then removed"
	case messages.HeldDevice:
		out.Cause = fmt.Sprintf("%s is a block device of %s that a kubelet mapped: it is kept, and stays in use", f.Path, kind)
		out.Remedy = "have a kubelet run here until its pod has ended, or release the device by hand"
		if kind == "kubernetes.io/csi" {
			out.Cause = fmt.Sprintf("%s is a block device of %s, and no record names its driver: it is kept, and stays in use",
				f.Path, kind)
			out.Remedy = "release the device by hand once its pod has ended, and remove its folders"
		}
	case messages.HeldMount:
		out.Cause = fmt.Sprintf("%s is mounted, and no record names its CSI driver: it is kept, and stays in use", f.Path)
		out.Remedy = "unmount it by hand once its pod has ended"
	case messages.HeldDriver:
		out.Cause = fmt.Sprintf("%s is a CSI volume, and a node without an API server has no drivers: it is kept", f.Path)
		out.Remedy = "give the agent the node's kubeconfig (--kubeconfig), or have a kubelet run here until its pod has ended"
	case messages.HeldRemains:
		out.Cause = fmt.Sprintf("%s of an ended pod could not be removed: it is kept: %s", f.Path, short(f.Error))
		out.LastError = f.Error
		out.Remedy = "unmount or move away what the error names; the removal is retried automatically"
	case messages.HeldStaged:
		out.Cause = fmt.Sprintf("%s is a volume that no pod has any more and that could not be unstaged: it stays in use: %s",
			f.Path, short(f.Error))
		out.LastError = f.Error
		out.Remedy = "see the log of its CSI driver's pod on this node, or end the processes that use a local volume " +
			"(fuser -vm " + f.Path + "); it is retried automatically"
	default: // HeldPlugin
		out.Cause = fmt.Sprintf("%s is a volume of %s, which a kubelet mounted and Playlet cannot mount", f.Path, kind)
		out.Remedy = "have a kubelet run here for pods with such volumes; at its pod's end the volume is unmounted"
		if f.UID == "" {
			out.Remedy = "have a kubelet run here until its pods have ended, or unmount it by hand after that"
		}
	}
	return out
}

// HeldIn lists the sentences on all folders that are held.
func HeldIn(s *board.Snapshot) (out []string) {
	for _, f := range s.Held {
		out = append(out, Held(f).Cause)
	}
	return out
}
