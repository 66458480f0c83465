package doctor

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
)

// checkVolumes names the folders of volumes and pods that the agent would keep because it cannot undo them, and those that a
// running agent keeps. Only the agent knows which folders are of pods that are over. It names the programs that nfs and iscsi
// volumes need if they are missing and a pod has such a volume.
func checkVolumes(ctx context.Context, m *Machine) []Finding {
	folders, err := leftover.Explain(m.Node.RootDir, m.Node.Standalone())
	if held, err := m.Held(ctx); err == nil { // checkAgent reports an agent that does not answer
		for _, f := range held {
			if !slices.ContainsFunc(folders, func(o api.Finding) bool { return o.Cause == f.Cause }) {
				folders = append(folders, f)
			}
		}
	}
	var found []Finding
	for _, f := range folders {
		found = append(found, warn(f.Remedy, "%s", f.Cause)...)
	}
	if err != nil {
		found = append(found, skip("%v", err)...)
	}
	ofPods := filepath.Join(m.Node.RootDir, kinds.PodsFolder, "*", kinds.NFSFolder("*"))
	if pods, err := filepath.Glob(ofPods); err == nil && len(pods) > 0 {
		if _, err := nfs.Find(); err != nil {
			found = append(found, warn("install the package", "%v", err)...)
		}
	}
	units := filepath.Join(m.Node.RootDir, kinds.PodsFolder, "*", kinds.VolumeFolder(iscsi.PluginName, "*"))
	if pods, err := filepath.Glob(units); err == nil && len(pods) > 0 {
		if _, err := iscsi.Find(); err != nil {
			found = append(found, warn("install the package", "%v", err)...)
		}
	}
	return or(found, ok("no volumes that the agent cannot manage"))
}
