package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
	dialer "github.com/playlet-dev/playlet/actors/internal/plugin"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// connectTimeout is how long a plugin has to answer once it has registered; the kubelet's.
const connectTimeout = 10 * time.Second

// Manager is the process's. Safe for concurrent use. Only Allocate, Prepare and a registration wait for plugins and the disk.
type Manager struct {
	dir    string // where the sockets are
	log    *slog.Logger
	ctx    context.Context // ends with Close; the connections are made from it
	cancel context.CancelFunc
	file   *overdue.Writer[state]
	loops  sync.WaitGroup
	pluginapi.UnimplementedRegistrationServer

	mu        sync.Mutex
	inventory *inventory
	paces     map[string]*pace // by resource
	notify    func(uid string) // see Notify
	listed    func()
	unread    string // why no checkpoint was read, until the Node was reset for that; empty: one was
	damage    string // a sentence on a checkpoint that could not be read
}

// maxResources limits the resources of plugins. Each is a line of the Node's status, which has a limit.
const maxResources = 500

// pace bounds the costs of a resource, whichever plugins it has.
type pace struct{ registrations, lists *rate.Limiter }

// isFull reports whether a new pace would permit no more.
func (p *pace) isFull(now time.Time) bool {
	full := func(l *rate.Limiter) bool { return l.TokensAt(now) >= float64(l.Burst()) }
	return full(p.registrations) && full(p.lists)
}

// plugin is one connection to a plugin, from its registration until it goes.
type plugin struct {
	resource string
	socket   string // in plugins_registry, by which it registered; empty: it registered itself
	conn     *grpc.ClientConn
	api      pluginapi.DevicePluginClient
	pace     *pace
	options  *pluginapi.DevicePluginOptions
}

// New reads the checkpoint in the folder "device-plugins" of the root folder. Hints are for these NUMA nodes. It returns no
// error: an unreadable checkpoint is set aside and logged.
func New(rootDir string, nodes topology.Mask, log *slog.Logger) *Manager {
	m := &Manager{dir: filepath.Join(rootDir, "device-plugins"), log: log, inventory: newInventory(nodes),
		notify: func(string) {}, listed: func() {}, paces: map[string]*pace{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.file = m.newFile()
	m.load(time.Now())
	return m
}

// SocketPath is where plugins register.
func (m *Manager) SocketPath() string { return filepath.Join(m.dir, "kubelet.sock") }

// Notify registers two functions that must not block: changed receives the UIDs of pods with a device that changed its health,
// and listed is called after each new list of a plugin.
func (m *Manager) Notify(changed func(uid string), listed func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify, m.listed = changed, listed
}

// locked calls f with the lock, and gives it back where f panics, too.
func (m *Manager) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// Close ends the connections. Plugins run on, and register with the next agent.
func (m *Manager) Close() {
	m.cancel()
	m.loops.Wait()
}

// Clear removes plugins' sockets before the registration socket is made. Live plugins then recreate theirs, and stale sockets
// are gone.
func (m *Manager) Clear() error {
	entries, err := os.ReadDir(m.dir)
	errs := []error{err}
	for _, e := range entries {
		if e.Type() == fs.ModeSocket {
			errs = append(errs, os.Remove(filepath.Join(m.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Handler answers on the socket for registrations: gRPC over HTTP/2 without TLS.
func (m *Manager) Handler() http.Handler {
	s := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(s, m)
	return s
}

// Register implements pluginapi.RegistrationServer. A plugin that registers again takes the place of the one before.
func (m *Manager) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	name := dialer.Shorten(r.GetResourceName())
	err := m.register(ctx, r)
	if err != nil {
		m.log.Warn("rejected a device plugin", "resource", name, "error", err)
		return nil, err
	}
	m.log.Info("device plugin registered", "resource", name, "endpoint", r.GetEndpoint())
	return &pluginapi.Empty{}, nil
}

func (m *Manager) register(ctx context.Context, r *pluginapi.RegisterRequest) error {
	name := r.GetResourceName()
	switch {
	case !slices.Contains(pluginapi.SupportedVersions[:], r.GetVersion()):
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", r.GetVersion(),
			pluginapi.SupportedVersions)
	case !isValid(name):
		return fmt.Errorf("the ResourceName %q is invalid", dialer.Shorten(name))
	case !filepath.IsLocal(r.GetEndpoint()):
		return fmt.Errorf("the endpoint %q is not in %s", dialer.Shorten(r.GetEndpoint()), m.dir)
	}
	p, err := m.admit(ctx, name)
	if err != nil {
		return err
	}
	return m.attach(m.ctx, p, filepath.Join(m.dir, r.GetEndpoint()))
}

// admit returns the plugin to attach once the pace of its resource permits it.
func (m *Manager) admit(ctx context.Context, name string) (p *plugin, err error) {
	m.locked(func() {
		if m.paces[name] == nil && len(m.paces) >= maxResources {
			m.forgetIdle(time.Now())
		}
		if m.paces[name] == nil && len(m.paces) < maxResources {
			m.paces[name] = &pace{registrations: dialer.Pace(), lists: dialer.Pace()}
		}
		p = &plugin{resource: name, pace: m.paces[name]}
	})
	if p.pace == nil {
		return nil, fmt.Errorf("device plugins have registered %d other resources, which is the limit", maxResources)
	}
	return p, p.pace.registrations.Wait(ctx)
}

// forgetIdle forgets resources without a plugin, without allocated devices, and with a full pace. The caller holds mu.
func (m *Manager) forgetIdle(now time.Time) {
	allocated := map[string]bool{}
	for _, has := range m.inventory.given {
		for name := range has {
			allocated[name] = true
		}
	}
	for name, p := range m.paces {
		k := m.inventory.resources[name]
		if !p.isFull(now) || k.current(now) || allocated[name] {
			continue
		}
		delete(m.paces, name)
		delete(m.inventory.resources, name)
	}
}

// isValid reports whether a plugin's resource may have this name.
func isValid(name string) bool {
	return admission.Extended(v1.ResourceName(name)) && len(validation.IsQualifiedName("requests."+name)) == 0
}

// attach connects to a plugin at its endpoint, the path of a socket, and follows it. An earlier one is replaced.
func (m *Manager) attach(ctx context.Context, p *plugin, endpoint string) error {
	name := p.resource
	metrics.PluginRegistrations.WithLabelValues(name).Inc()
	if err := p.connect(ctx, endpoint); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.inventory.resources[name]
	if k == nil {
		k = &resourceState{}
		m.inventory.resources[name] = k
	}
	if k.plugin != nil {
		_ = k.plugin.conn.Close() // it is replaced
	}
	k.plugin, k.listed, k.gone = p, false, time.Time{} // its list comes in a moment
	m.loops.Go(func() {
		defer func() { _ = p.conn.Close() }()
		guard.GoOn(m.ctx, m.log, "what a device plugin tells", func(ctx context.Context) { m.follow(ctx, p) })
	})
	return nil
}

func (p *plugin) connect(ctx context.Context, endpoint string) (err error) {
	if p.conn, err = dialer.Dial(endpoint); err != nil {
		return err
	}
	p.api = pluginapi.NewDevicePluginClient(p.conn)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if p.options, err = p.api.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true)); err != nil {
		return errors.Join(fmt.Errorf("failed to get device plugin options: %w", err), p.conn.Close())
	}
	return nil
}

// follow takes the plugin's lists until it goes, and notes that.
func (m *Manager) follow(ctx context.Context, p *plugin) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a panic leaves no stream behind
	type list = *pluginapi.ListAndWatchResponse
	err := dialer.Stream[list]{
		Open: func(ctx context.Context) (func() (list, error), error) {
			stream, err := p.api.ListAndWatch(ctx, &pluginapi.Empty{})
			if err != nil {
				return nil, err
			}
			return stream.Recv, nil
		},
		Join: func(_, newer list) list { return newer },
		Take: func(l list) { m.take(p, l.GetDevices()) },
		Pace: p.pace.lists, Log: m.log,
	}.Follow(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.inventory.resources[p.resource]; k != nil && k.plugin == p && m.ctx.Err() == nil {
		m.lose(k, err)
	}
}

// lose notes that the plugin of a resource is gone. The caller holds mu.
func (m *Manager) lose(k *resourceState, why error) {
	m.log.Warn("device plugin disconnected; its devices are not allocated until it registers again",
		"resource", k.plugin.resource, "error", dialer.Shorten(why.Error()))
	_ = k.plugin.conn.Close()
	k.plugin, k.listed, k.gone = nil, false, time.Now()
}

// take applies a list. It does the slow parts without the lock, because mailboxes wait for it.
func (m *Manager) take(p *plugin, list []*pluginapi.Device) {
	all, usable := read(list)
	var was resourceState
	m.locked(func() { was = *m.inventory.resources[p.resource] })
	if was.plugin != p || was.same(all) {
		return
	}
	var uids []string
	var notify func(uid string)
	var listed func()
	m.locked(func() {
		if m.inventory.resources[p.resource].plugin == p {
			uids, notify, listed = m.inventory.observe(p.resource, all, usable), m.notify, m.listed
			m.put()
		}
	})
	if notify == nil { // it was replaced
		return
	}
	m.log.Info("device plugin reported its devices", "resource", p.resource, "devices", len(all), "healthy", len(usable))
	for _, uid := range uids {
		notify(uid)
	}
	listed()
	m.flush()
}
