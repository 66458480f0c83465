package agent

import (
	"net/http"
	"path/filepath"

	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/server/nodeapi"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
)

// systemLogs is the folder that the node's API shows, the kubelet's.
const systemLogs = "/var/log"

// nodeAPI is the node's API on the ports of the configuration.
func (a *Agent) nodeAPI() *server.NodeAPI {
	k := a.node.Kubelet
	api := &server.NodeAPI{
		Config: nodeapi.Config{
			Runtime: a.client, Kubelet: a.node.Presentable(), Flags: a.node.Flags, Kubernetes: version.Kubernetes,
			SystemLogs: systemLogs, CheckpointDir: filepath.Join(a.node.RootDir, "checkpoints"),
			SetVerbosity: a.node.SetVerbosity,
			Figures:      func() http.Handler { return stats.Handler(a.figures, a.metrics) },
		},
	}
	if address := a.guard.exposure.ReadOnly; address != "" {
		api.ReadOnlyAddress, api.ReadOnlyPort = address, int(k.ReadOnlyPort)
	}
	if g := a.guard; g.tls != nil {
		api.Address, api.Port, api.TLS = g.exposure.Address, int(k.Port), g.tls
		api.Ready = g.serving.Prepare
		api.Filter = func(next http.Handler) http.Handler {
			return a.metrics.HTTP("readwrite", g.access.Filter(next))
		}
	}
	return api
}
