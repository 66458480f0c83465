package agent

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/playlet-dev/playlet/config"
)

// prepareFolders makes the agent's folders.
func prepareFolders(node *config.Node) error {
	for _, f := range []struct {
		dir  string
		mode os.FileMode
	}{
		{node.RootDir, 0o750}, {filepath.Join(node.RootDir, "pods"), 0o750}, {stateDir(node), 0o700},
		{node.Kubelet.PodLogsDir, 0o755},
	} {
		if err := makeFolder(f.dir, f.mode); err != nil {
			return fmt.Errorf("making a folder of the agent: %w", err)
		}
	}
	return nil
}

// makeFolder makes a folder with this mode, whatever the umask is. One that is there keeps its own.
func makeFolder(dir string, mode os.FileMode) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}
