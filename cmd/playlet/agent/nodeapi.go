package agent

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/server/access"
	"github.com/playlet-dev/playlet/actors/server/cadvisor"
	"github.com/playlet-dev/playlet/actors/server/nodeapi"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
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

const openToAll = "port 10250 lets in everybody who can connect: authentication.anonymous is on and " +
	"authorization.mode is AlwaysAllow"

// guard is what stands before the node's API on port 10250: the serving certificate, and who may do what.
type guard struct {
	exposure access.Exposure
	// serving, access and tls are nil where the port is closed.
	serving *identity.Serving
	access  *access.Access
	tls     *tls.Config
}

// openGuard reads the files that the configuration names, and an error is about one of them; nothing listens and nothing is sent.
// Where anything else keeps the serving certificate from being had, the pods run, and the port opens once it is there.
func openGuard(node *config.Node, c *cluster, addresses *nodeAddresses, log *slog.Logger) (g *guard, err error) {
	g = &guard{exposure: access.Exposed(node)}
	for _, why := range g.exposure.Others() {
		log.Warn(why)
	}
	switch e := g.exposure; {
	case e.Closed != "":
		log.Info("port 10250 is closed", "reason", e.Closed)
		return g, nil
	case e.Narrowed != "":
		log.Warn("port 10250 is open on the loopback alone", "address", e.Address, "reason", e.Narrowed)
	case e.Everybody:
		log.Warn(openToAll)
	}
	k := node.Kubelet
	rules := access.Options{
		NodeName: node.NodeName, Authentication: k.Authentication, Authorization: k.Authorization,
		Log: log.With(podlog.ActorKey, messages.Server.String()),
	}
	shown := identity.ServingOptions{
		NodeName: node.NodeName, CertFile: k.TLSCertFile, KeyFile: k.TLSPrivateKeyFile, CertDir: node.CertDir,
		Bootstrap: k.ServerTLSBootstrap, Addresses: addresses.certified,
		Log: log.With(podlog.ActorKey, messages.Identity.String()),
	}
	if c != nil {
		rules.Tokens, rules.Rights, shown.Client = c.clients.TokenReviews, c.clients.AccessReviews, c.clients.Main
	}
	defer func() {
		if err != nil {
			g.close()
			g = nil
		}
	}()
	g.serving = identity.NewServing(shown)
	if k.TLSCertFile != "" || k.TLSPrivateKeyFile != "" {
		if err := g.serving.Prepare(); err != nil {
			return g, err
		}
	}
	if g.access, err = access.New(rules); err != nil {
		return g, err
	}
	g.tls, err = g.serving.TLS(k, g.access.ClientCAs)
	return g, err
}

// close may be called on nil.
func (g *guard) close() {
	if g != nil && g.serving != nil {
		g.serving.Close()
	}
	if g != nil && g.access != nil {
		g.access.Close()
	}
}

// certified are the addresses that the serving certificate is asked for; none until they are known.
func (n *nodeAddresses) certified() []corev1.NodeAddress {
	if n.unsettled() {
		return nil
	}
	out := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.node.NodeName}}
	for _, ip := range n.hostIPs() {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return out
}

// identityProblems are sentences for health.
func (a *Agent) identityProblems() []string {
	out := slices.Clone(a.credentials.Problems())
	e := a.guard.exposure
	switch {
	case e.Closed != "":
		out = append(out, "port 10250 is closed: "+e.Closed)
	case e.Narrowed != "":
		out = append(out, "port 10250 is open on "+e.Address+" alone: "+e.Narrowed)
	case e.Everybody:
		out = append(out, openToAll)
	}
	return append(out, e.Others()...)
}
