package agent

import (
	"crypto/tls"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/identity"
	"github.com/playlet-dev/playlet/actors/server/access"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/messages"
)

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
func openGuard(node *config.Node, c *cluster, addresses *nodeAddresses, log *slog.Logger) (*guard, error) {
	g := &guard{exposure: access.Exposed(node)}
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
		Log: log.With(actorKey, messages.Server.String()),
	}
	shown := identity.ServingOptions{
		NodeName: node.NodeName, CertFile: k.TLSCertFile, KeyFile: k.TLSPrivateKeyFile, CertDir: node.CertDir,
		Bootstrap: k.ServerTLSBootstrap, Addresses: addresses.certified, Log: log.With(actorKey, messages.Identity.String()),
	}
	if c != nil {
		rules.Tokens, rules.Rights, shown.Client = c.clients.TokenReviews, c.clients.AccessReviews, c.clients.Main
	}
	var err error
	g.serving = identity.NewServing(shown)
	if k.TLSCertFile != "" || k.TLSPrivateKeyFile != "" {
		err = g.serving.Prepare()
	}
	if err != nil {
		g.close()
		return nil, err
	}
	if g.access, err = access.New(rules); err != nil {
		g.close()
		return nil, err
	}
	if g.tls, err = g.serving.TLS(k, g.access.ClientCAs); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *guard) close() {
	if g.serving != nil {
		g.serving.Close()
	}
	if g.access != nil {
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

// wireIdentity binds the actor of the credentials; a standalone node whose port 10250 is closed has none.
func wireIdentity(c *cluster, g *guard, state *identity.State) rows {
	o := identity.Options{Serving: g.serving, State: state}
	if c != nil {
		o.Client = c.identity
	}
	if o.Client == nil && o.Serving == nil {
		return rows{"identity": nil}
	}
	return rows{"identity": identity.New(o)}
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
