package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"

	"github.com/playlet-dev/playlet/actors/internal/devices"
	"github.com/playlet-dev/playlet/actors/server/podresources"
	"github.com/playlet-dev/playlet/actors/server/podsapi"
)

const (
	devicePlugins = "device-plugins" // registration of device plugins
	rpcConns      = 256
)

func (l *Listeners) addPlugins(m *devices.Manager) {
	var claims podresources.Claims
	if l.conf.Claims != nil {
		claims = l.conf.Claims
	}
	l.ends = append(l.ends,
		rpcEndpoint(devicePlugins, &rpcOpener{socketOpener: socketOpener{path: m.SocketPath(), before: m.Clear}}, m.Handler()),
		rpcEndpoint("pod-resources",
			&rpcOpener{socketOpener: socketOpener{path: filepath.Join(l.conf.RootDir, "pod-resources", "kubelet.sock")}},
			podresources.New(l.conf.Board, m, l.conf.CPUs, l.conf.Memory, claims, l.conf.ListEnded)))
}

// addPodsAPI serves the Pods API on the socket where the kubelet does.
func (l *Listeners) addPodsAPI() {
	l.ends = append(l.ends, rpcEndpoint("pods-api",
		&rpcOpener{socketOpener: socketOpener{path: filepath.Join(l.conf.RootDir, "pods-api", "pods-api.sock")}},
		podsapi.New(l.conf.Board)))
}

// rpcEndpoint returns the endpoint of a gRPC service on a socket for root.
func rpcEndpoint(name string, opener *rpcOpener, h http.Handler) *endpoint {
	server := &http.Server{Handler: whileBusy(h), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	return newEndpoint(name, opener.path, rpcConns, server, opener)
}

// rpcOpener opens a socket that a kubelet has, too. A kubelet beside the agent is no reason to exit.
type rpcOpener struct{ socketOpener }

func (d *rpcOpener) open(ctx context.Context) (net.Listener, error) {
	l, err := d.socketOpener.open(ctx)
	if errors.Is(err, ErrInUse) {
		return nil, errors.New("another program listens on " + d.path + ": a kubelet, or another playlet")
	}
	return l, err
}

// noPlugins returns the reason that device plugins cannot register, or "".
func (l *Listeners) noPlugins() string {
	for _, s := range l.State() {
		if s.Name == devicePlugins && s.Error != "" {
			return s.Error
		}
	}
	return ""
}
