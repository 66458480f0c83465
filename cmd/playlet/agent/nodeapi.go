package agent

import (
	"net"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/server/cadvisor"
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
	api.Submission = a.node.EnableManifestSubmission
	if address := a.guard.exposure.ReadOnly; address != "" {
		api.ReadOnlyAddress, api.ReadOnlyPort = address, int(k.ReadOnlyPort)
		api.CountReadOnly = func(next http.Handler) http.Handler { return a.metrics.HTTP("readonly", next) }
	}
	if g := a.guard; g.tls != nil {
		api.Address, api.Port, api.TLS = g.exposure.Address, int(k.Port), g.tls
		api.Ready, api.Proven = g.serving.Prepare, g.access.Proven
		api.Filter = func(next http.Handler) http.Handler {
			return a.metrics.HTTP("readwrite", g.access.Filter(next))
		}
	}
	return api
}

// cadvisor is the handler of cAdvisor's port, and where it is; nil: nowhere.
func (a *Agent) cadvisor() (http.Handler, string) {
	address := a.guard.exposure.CAdvisor
	if address == "" {
		return nil, ""
	}
	return cadvisor.New(cadvisor.Config{
		NodeName: a.node.NodeName, Figures: a.figures, Board: a.board, Metrics: stats.CAdvisorHandler(a.figures),
	}), net.JoinHostPort(address, strconv.Itoa(int(a.node.CAdvisorPort)))
}
