package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/actors/server"
	"github.com/playlet-dev/playlet/actors/server/access"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/cadvisor"
	"github.com/playlet-dev/playlet/actors/server/healthz"
	"github.com/playlet-dev/playlet/actors/server/nodeapi"
	page "github.com/playlet-dev/playlet/actors/server/observatory"
	"github.com/playlet-dev/playlet/actors/stats"
	"github.com/playlet-dev/playlet/cmd/playlet/agent/podlog"
	"github.com/playlet-dev/playlet/cmd/playlet/version"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// served returns the configuration of the listeners, which expose most of the agent's state.
func served(node *config.Node, host *pod.Host, state *runtime.State, m *machine, c *cluster, g *guard, o *observatory,
	log *slog.Logger) server.Config {
	k := node.Kubelet
	out := server.Config{
		Notes:   []healthz.Note{{Check: "probes", Says: func() []string { return o.lateness.Problems(time.Now()) }}},
		Checked: o.metrics.Checked, RootDir: node.RootDir, Args: node.Args, AdminSocket: node.AdminSocket,
		AdminSocketGroup: node.AdminSocketGroup, HealthzAddress: k.HealthzBindAddress,
		HealthzPort: int(ptr.Deref(k.HealthzPort, 0)), Board: o.board, Runtime: runtimeForAdmin(state), Chaos: o.chaos,
		PodLogsDir: k.PodLogsDir, CRI: host.CRI, Events: o.events,
		StreamIdleTimeout: k.StreamingConnectionIdleTimeout.Duration, CountWebSocket: o.metrics.WebSocketOpened,
		Node: nodeAPI(node, host.CRI, state, g, o), Devices: host.Devices, Claims: host.Claims, CPUs: host.CPUs,
		Memory:    host.Memory,
		ListEnded: !node.FeatureEnabled("KubeletPodResourcesListUseActivePods"), PodsAPI: node.FeatureEnabled("PodsAPI"),
		Figures: func(ctx context.Context, all bool) api.Figures {
			o.figures.RecordFigures()
			summary, lacks := o.figures.Summary(ctx, !all)
			return api.Figures{At: time.Now(), Summary: *summary, Missing: lacks, Agent: process(),
				Allocatable: allocatable(node, m.reader.Last())}
		},
		History: o.figures.History,
		Version: version.Playlet(), Kubernetes: version.Kubernetes,
		Log: log.With(podlog.ActorKey, messages.Server.String()),
	}
	if node.Standalone() && len(k.ClusterDNS) == 0 {
		out.Notes = append(out.Notes, healthz.NoClusterDNS(o.board))
	}
	if c != nil {
		out.Notes = append(out.Notes, healthz.Note{Check: "cluster", Says: c.problems})
		out.Registered = func() api.Registration {
			s := c.registered.Load()
			return api.Registration{LeaseExpires: s.LeaseExpires, NotReady: s.NotReady}
		}
	}
	out.Notes = append(out.Notes, healthz.Note{Check: "identity", Says: g.credentials.Problems},
		healthz.Note{Check: "port", Says: g.portProblems}, healthz.Note{Check: "shutdown", Says: m.shutdown.Problems})
	if address := g.exposure.CAdvisor; address != "" {
		out.CAdvisorAddress = net.JoinHostPort(address, strconv.Itoa(int(node.CAdvisorPort)))
		out.CAdvisor = cadvisor.New(cadvisor.Config{
			NodeName: node.NodeName, Figures: o.figures, Board: o.board,
			Metrics: nodeapi.Bounded(stats.CAdvisorHandler(o.figures)),
		})
	}
	if address := g.exposure.Observatory; address != "" {
		token := page.NewToken(filepath.Join(stateDir(node), "observatory-token"))
		out.Observatory = server.Observatory{Address: address, Token: token}
	}
	return out
}

// nodeAPI is the node's API on the ports of the configuration.
func nodeAPI(node *config.Node, cri nodeapi.Runtime, state *runtime.State, g *guard, o *observatory) *server.NodeAPI {
	k := node.Kubelet
	api := &server.NodeAPI{
		Config: nodeapi.Config{
			Runtime: cri, Kubelet: node.Presentable(), Flags: node.Flags, Kubernetes: version.Kubernetes,
			CgroupDriver: func() string { return state.Load().CgroupDriver },
			SystemLogs:   "/var/log", CheckpointDir: filepath.Join(node.RootDir, "checkpoints"),
			SetVerbosity: node.SetVerbosity,
			Figures:      stats.Handler(o.figures, o.metrics),
		},
		Submission: node.EnableManifestSubmission,
	}
	if address := g.exposure.ReadOnly; address != "" {
		api.ReadOnlyAddress, api.ReadOnlyPort = address, int(k.ReadOnlyPort)
		api.CountReadOnly = func(next http.Handler) http.Handler { return o.metrics.HTTP("readonly", next) }
	}
	if g.tls != nil {
		api.Address, api.Port, api.TLS = g.exposure.Address, int(k.Port), g.tls
		api.Ready, api.Proven = g.serving.Prepare, g.access.Proven
		api.Filter = func(next http.Handler) http.Handler {
			return o.metrics.HTTP("readwrite", g.access.Filter(next))
		}
	}
	return api
}

const openToAll = " lets in everybody who can connect: authentication.anonymous is on and authorization.mode is AlwaysAllow"

// guard protects the node's API on port 10250: the serving certificate, authentication and authorization.
type guard struct {
	port        string // "port 10250"
	exposure    access.Exposure
	credentials identity.State // has the problems of this node's credentials
	// serving, access and tls are nil where the port is closed.
	serving *identity.ServingCertificate
	access  *access.Access
	tls     *tls.Config
}

// openGuard reads the files that the configuration names, and an error is about one of them; nothing listens and nothing is sent.
// Where anything else keeps the serving certificate from being had, the pods run, and the port opens once it is there.
func openGuard(node *config.Node, c *cluster, addresses *nodeAddresses, log *slog.Logger) (g *guard, err error) {
	g = &guard{port: fmt.Sprintf("port %d", node.Kubelet.Port), exposure: access.Exposed(node)}
	for _, why := range g.exposure.Others() {
		log.Warn(why)
	}
	switch e := g.exposure; {
	case e.Closed != "":
		log.Info(g.port+" is closed", "reason", e.Closed)
		return g, nil
	case e.Narrowed != "":
		log.Warn(g.port+" is open only on the loopback", "address", e.Address, "reason", e.Narrowed)
	case e.Everybody:
		log.Warn(g.port + openToAll)
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

// portProblems are sentences for health.
func (g *guard) portProblems() (out []string) {
	switch e := g.exposure; {
	case e.Closed != "":
		out = append(out, g.port+" is closed: "+e.Closed)
	case e.Narrowed != "":
		out = append(out, g.port+" is open only on "+e.Address+": "+e.Narrowed)
	case e.Everybody:
		out = append(out, g.port+openToAll)
	}
	return append(out, g.exposure.Others()...)
}

// wireIdentity binds the identity actor. It returns nil on a standalone node whose port 10250 is closed: no credentials exist.
func wireIdentity(g *guard, c *cluster) supervisors.Constructor {
	o := identity.Options{Serving: g.serving, State: &g.credentials}
	if c != nil {
		o.Client = c.identity
	}
	if o.Client == nil && o.Serving == nil {
		return nil
	}
	return identity.New(o)
}
