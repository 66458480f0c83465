package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"strconv"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/actors/server/nodeapi"
)

// NodeAPI is the node's API, and the ports that it is served on.
type NodeAPI struct {
	nodeapi.Config // its Board, Containers, Healthz and Log are set by NewListeners
	// Address and ReadOnlyAddress are IP addresses. Port has the whole API, by TLS; ReadOnlyPort what can be read without
	// credentials. A port that is 0 is switched off.
	Address, ReadOnlyAddress string
	Port, ReadOnlyPort       int
	// TLS has the certificate, asks for those of clients, and offers HTTP/1.1 alone; Filter authenticates and authorizes. Where
	// one of them is nil, Port stays closed.
	TLS    *tls.Config
	Filter func(http.Handler) http.Handler
	// Proven says that a request came with a client certificate that is valid, which asks as often as it likes.
	Proven func(*http.Request) bool
	// CountReadOnly counts the requests of ReadOnlyPort; nil: nobody does.
	CountReadOnly func(http.Handler) http.Handler
	// Submission serves /manifests on Port: whoever has the right to creates pods there.
	Submission bool
	// Ready says why Port cannot be opened yet; the actor asks again, with back-off. It may read files. nil: it always can.
	Ready func() error
}

// nodeConns is how many connections a port of the node's API has: for all logs and streams there may be, and as many requests.
const nodeConns = 2048

// maxNodeHeaderBytes is for port 10250: the command of an exec, a script at times, is in the URL. The kernel takes 128 KiB of one
// argument. A quarter of the library's limit, as headers are read before anybody is known.
const maxNodeHeaderBytes = 256 << 10

func (l *Listeners) addNodeAPI(n *NodeAPI) {
	conf := n.Config
	conf.Board, conf.Containers, conf.Healthz, conf.Log = l.conf.Board, l.ofNode, l.health.NodeHandler(), l.log
	if n.Submission {
		conf.Manifests = admin.Manifests(admin.Config{Tree: l.tree})
	}
	if n.Port != 0 && n.TLS != nil && n.Filter != nil {
		// Inside the filter: who is not let in, or not yet, is idle, and his connection may be closed for another's.
		e := nodeEndpoint("nodeapi", net.JoinHostPort(n.Address, strconv.Itoa(n.Port)), n.Filter(whileBusy(nodeapi.New(conf))),
			n.Proven)
		e.server.TLSConfig, e.secure, e.server.MaxHeaderBytes = n.TLS, true, maxNodeHeaderBytes
		if n.Ready != nil {
			e.door = readyDoor{e.door, n.Ready}
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
	return newEndpoint(name, where, nodeConns, server, tcpDoor(where))
}

// NodePort is where the node's API is served; 0: nowhere.
func (l *Listeners) NodePort() int { return l.nodePort }
