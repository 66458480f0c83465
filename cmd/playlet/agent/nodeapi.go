package agent

import (
	"path/filepath"

	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/server/nodeapi"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
)

// systemLogs is the folder that the node's API shows, the kubelet's.
const systemLogs = "/var/log"

// nodeAPI is the node's API on the ports of the configuration.
func (a *Agent) nodeAPI() *server.NodeAPI {
	k := a.node.Kubelet
	api := &server.NodeAPI{
		Config: nodeapi.Config{
			Runtime: a.client, Kubelet: a.node.Presentable(), Flags: a.node.Flags, Kubernetes: version.Kubernetes, SystemLogs: systemLogs,
			CheckpointDir: filepath.Join(a.node.RootDir, "checkpoints"), SetVerbosity: a.node.SetVerbosity,
		},
		Address: k.Address, ReadOnlyPort: int(k.ReadOnlyPort),
	}
	if ptr.Deref(k.EnableServer, true) {
		api.Port = int(k.Port)
	}
	return api
}
