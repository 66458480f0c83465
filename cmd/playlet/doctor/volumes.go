package doctor

import (
	"context"

	"github.com/playlet-dev/playlet/actors/volumes/leftover"
)

// checkVolumes names the folders of volumes that the agent would keep because it cannot undo them.
func checkVolumes(_ context.Context, m *Machine) []Finding {
	folders, err := leftover.Explain(m.Node.RootDir, m.Node.Standalone())
	var found []Finding
	for _, f := range folders {
		found = append(found, warn(f.Remedy, "%s", f.Cause)...)
	}
	if err != nil {
		found = append(found, skip("%v", err)...)
	}
	return or(found, ok("no volumes that the agent cannot manage"))
}
