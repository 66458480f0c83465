package stack

import (
	"maps"
	"path/filepath"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// Kubelet is the path of the kubelet that the agent is compared with, for Agent.Binary.
func Kubelet() (string, error) {
	parts, err := install.LocateCluster()
	return parts.Kubelet, err
}

func (a *Agent) binary() string {
	if a.Binary != "" {
		return a.Binary
	}
	return Binary()
}

// kubeletLine has the flags of the agent that are the kubelet's too.
func (a *Agent) kubeletLine() []string {
	return append([]string{
		"--root-dir=" + a.RootDir,
		"--config=" + filepath.Join(a.dir, "config.yaml"),
		"--hostname-override=" + isolate.HostName,
		"--node-ip=" + isolate.NodeIP,
	}, a.Args...)
}

// configuration returns the written Config: for a kubelet with its additional requirements here, unless Config sets them.
func (a *Agent) configuration() map[string]any {
	if a.Binary == "" {
		return a.Config
	}
	all := map[string]any{
		"staticPodPath": a.ManifestDir,
		"oomScoreAdj":   0, // lowering it takes CAP_SYS_RESOURCE
		"port":          a.healthPort + 10000,
	}
	maps.Copy(all, a.Config)
	return all
}
