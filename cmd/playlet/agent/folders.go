package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/config"
)

// prepareFolders makes the agent's folders, and locks the root folder for this process.
func prepareFolders(node *config.Node) (lock *os.File, err error) {
	for _, f := range []struct {
		dir  string
		mode os.FileMode
	}{
		{node.RootDir, 0o750}, {filepath.Join(node.RootDir, "pods"), 0o750}, {stateDir(node), 0o700},
		{node.Kubelet.PodLogsDir, 0o755},
	} {
		if err := makeFolder(f.dir, f.mode); err != nil {
			return nil, fmt.Errorf("making a folder of the agent: %w", err)
		}
	}
	path := filepath.Join(stateDir(node), "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another playlet runs with the same --root-dir %s (its lock %s is held): %w",
			node.RootDir,
			path, err), f.Close())
	}
	return f, nil
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
