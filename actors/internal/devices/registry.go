package devices

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	dialer "github.com/playlet-dev/playlet/actors/internal/plugin"
)

// Registry handles device plugins that register by a socket in plugins_registry (pluginwatch.Handler). The name of such a plugin
// is its resource. The socket's end is the plugin's end; the plugin of another socket, or one that registered itself, stays.
type Registry struct{ m *Manager }

// Registry returns the handler for the watcher of plugins, which must have stopped before Close.
func (m *Manager) Registry() Registry { return Registry{m} }

// Register implements pluginwatch.Handler. As with the kubelet, the plugin that registered last has the resource. The errors are
// the kubelet's, since the plugin receives them.
func (r Registry) Register(ctx context.Context, socket, name, endpoint string, versions []string) error {
	switch {
	case !slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(pluginapi.SupportedVersions[:], v) }):
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %v", pluginapi.Version, versions)
	case !isValid(name):
		return fmt.Errorf("invalid name of device plugin socket: the ResourceName %q is invalid", dialer.Shorten(name))
	case !filepath.IsAbs(endpoint):
		return fmt.Errorf("the endpoint %q is no absolute path", dialer.Shorten(endpoint))
	}
	p, err := r.m.admit(ctx, name)
	if err != nil {
		return err
	}
	p.socket = socket
	return r.m.attach(ctx, p, endpoint)
}

// Deregister implements pluginwatch.Handler.
func (r Registry) Deregister(socket, name string) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.inventory.resources[name]; k != nil && k.plugin != nil && k.plugin.socket == socket {
		m.lose(k, errors.New("its socket "+socket+" is gone"))
	}
}
