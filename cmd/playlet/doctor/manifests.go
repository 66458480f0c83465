package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// checkManifests looks at where pods come from.
func checkManifests(_ context.Context, m *Machine) []Finding {
	path := m.Node.Kubelet.StaticPodPath
	if path == "" {
		if m.Node.Kubelet.StaticPodURL != "" {
			return ok("no folder is configured; manifests come from a URL")
		}
		return ok("no folder is configured; pods are submitted (playlet run)")
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn("mkdir -p "+path+"; it is watched for, and counts as empty until then", "%s does not exist", path)
	case err != nil:
		return fail("see that the folders above it can be read", "%v", err)
	case info.Mode().Perm()&0o022 != 0:
		return warn("chmod go-w "+path, "others than its owner may write to %s, and so run anything as root here", path)
	case !info.IsDir():
		return ok("%s, one file", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fail("see that it can be read", "%v", err)
	}
	count := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			count++
		}
	}
	if count == 1 {
		return ok("%s, 1 file", path)
	}
	return ok("%s, %d files", path, count)
}
