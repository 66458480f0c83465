package locks

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/config"
)

// The agent's folders have the modes of the kubelet's, whatever umask it is started with.
func TestFolders_IgnoreUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	dir := t.TempDir()
	node := &config.Node{RootDir: filepath.Join(dir, "root"),
		Kubelet: &kubeletconfig.KubeletConfiguration{PodLogsDir: filepath.Join(dir, "logs")}}
	if err := prepareFolders(node); err != nil {
		t.Fatal(err)
	}
	for folder, mode := range map[string]os.FileMode{"logs": 0o755, "root": 0o750, "root/pods": 0o750, "root/playlet": 0o700} {
		if info, err := os.Stat(filepath.Join(dir, folder)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", folder, info.Mode(), err, mode)
		}
	}
}
