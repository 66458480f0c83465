package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"strconv"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/actors/server/nodeapi"
)

// NodeAPI is the node's API, with its ports.
type NodeAPI struct {
	nodeapi.Config // NewListeners sets its Board, Containers, Healthz and Log
	// Address and ReadOnlyAddress are IP addresses. Port serves the whole API, by TLS; ReadOnlyPort the parts readable without
	// credentials. Port 0 disables them.
	Address, ReadOnlyAddress string
	Port, ReadOnlyPort       int
	// TLS has the certificate, requests clients' certificates, and only offers HTTP/1.1; Filter authenticates and authorizes. If
	// one of them is nil, Port stays closed.
	TLS    *tls.Config
	Filter func(http.Handler) http.Handler
	// Proven reports whether a request came with a valid client certificate, which exempts it from the rate limit.
	Proven func(*http.Request) bool
	// CountReadOnly counts the requests of ReadOnlyPort; may be nil.
	CountReadOnly func(http.Handler) http.Handler
	// Submission serves /manifests on Port: authorized clients create pods there.
	Submission bool
	// Ready returns the reason that Port cannot be opened yet; the actor retries with back-off. It may read files. It may be nil.
	Ready func() error
}

// nodeConns limits the connections of a port of the node's API: enough for all logs and streams, and as many requests.
const nodeConns = 2048

// maxNodeHeaderBytes is the limit of port 10250: the command of an exec, sometimes a script, is in the URL. The kernel accepts
// 128 KiB for one argument. A quarter of the library's limit, as headers are read before authentication.
const maxNodeHeaderBytes = 256 << 10

func (l *Listeners) addNodeAPI(n *NodeAPI) {
	conf := n.Config
	conf.Board, conf.Containers, conf.Healthz, conf.Log = l.conf.Board, l.ofNode, l.health.NodeHandler(), l.log
	if n.Submission {
		conf.Manifests = admin.Manifests(admin.Config{Tree: l.tree})
	}
	if n.Port != 0 && n.TLS != nil && n.Filter != nil {
		// Inside the filter: a connection without an admitted request counts as idle, and may be closed for another.
		e := nodeEndpoint("nodeapi", net.JoinHostPort(n.Address, strconv.Itoa(n.Port)), n.Filter(whileBusy(nodeapi.New(conf))),
			n.Proven)
		e.server.TLSConfig, e.secure, e.server.MaxHeaderBytes = n.TLS, true, maxNodeHeaderBytes
		if n.Ready != nil {
			e.opener = readyOpener{e.opener, n.Ready}
		}
		l.ends, l.nodePort = append(l.ends, e), n.Port
	}
	if n.ReadOnlyPort != 0 {
		where := net.JoinHostPort(n.ReadOnlyAddress, strconv.Itoa(n.ReadOnlyPort))
		readOnly := whileBusy(nodeapi.ReadOnly(conf))
		if n.CountReadOnly != nil {
			readOnly = n.CountReadOnly(readOnly)
		}
		l.ends = append(l.ends, nodeEndpoint("readonly", where, readOnly, nil))
	}
}

func nodeEndpoint(name, where string, h http.Handler, proven func(*http.Request) bool) *endpoint {
	server := &http.Server{Handler: newClients().limit(h, proven), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	return newEndpoint(name, where, nodeConns, server, tcpOpener(where))
}

// NodePort returns the port of the node's API, or 0.
func (l *Listeners) NodePort() int { return l.nodePort }
