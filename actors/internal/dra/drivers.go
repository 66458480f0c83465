package dra

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	beta "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	dialer "github.com/playlet-dev/playlet/actors/internal/plugin"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// services are the supported APIs of plugins.
var services = []string{api.DRAPluginService, beta.DRAPluginService}

// callTimeout is how long a plugin has for one call; the kubelet's.
const callTimeout = 45 * time.Second

// healthPause is the time between tries to watch a driver's devices; the kubelet's.
const healthPause = 5 * time.Second

// reconnect is short, so that a plugin that has come back is soon connected. ResetConnectBackoff is not called: in gRPC 1.85 it
// reads a map without its lock, and the runtime ends the process if a connection is made meanwhile.
var reconnect = grpc.ConnectParams{MinConnectTimeout: 20 * time.Second,
	Backoff: backoff.Config{BaseDelay: 250 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}

// plugin is one registered plugin of a driver. A driver has two of them during a rolling update.
type plugin struct {
	driver, socket, endpoint, service string

	conn      *grpc.ClientConn
	stop      context.CancelFunc
	connected bool // guarded by Manager.mu
	// reports and connections limit the reports of health and the connections: a driver may send and hang up without pause.
	reports, connections *rate.Limiter
}

// calls returns the plugin's API, whichever version it has.
func (p *plugin) calls() api.DRAPluginClient {
	if p.service == beta.DRAPluginService {
		return beta.V1Beta1ClientWrapper{DRAPluginClient: beta.NewDRAPluginClient(p.conn)}
	}
	return api.NewDRAPluginClient(p.conn)
}

// plugins are the registered plugins by driver, in the order of their registration.
type plugins map[string][]*plugin

// connected reports whether a plugin of the driver is connected.
func (all plugins) connected(driver string) bool {
	return slices.ContainsFunc(all[driver], func(p *plugin) bool { return p.connected })
}

// pick returns the newest connected plugin of a driver, or else the newest one; nil: none is registered.
func (all plugins) pick(driver string) (best *plugin) {
	for _, p := range all[driver] {
		if best == nil || p.connected || !best.connected {
			best = p
		}
	}
	return best
}

// plugin returns the plugin to call for claims.
func (m *Manager) plugin(driver, claims string) (p *plugin, err error) {
	m.locked(func() { p = m.plugins.pick(driver) })
	if p == nil {
		return nil, messages.Cause{Code: messages.CauseClaimDriverAbsent, Name: driver, Detail: claims}.Errorf(
			"DRA driver %s is not registered", driver)
	}
	return p, nil
}

// Registry handles plugins that register by a socket in plugins_registry (pluginwatch.Handler). The name of a plugin is its
// driver.
type Registry struct{ m *Manager }

// Registry returns the handler for the watcher of plugins, which must have stopped before Close.
func (m *Manager) Registry() Registry { return Registry{m} }

// Register implements pluginwatch.Handler. As with the kubelet, it does not wait for the plugin's service, which may start later.
// The first version in the plugin's list that is supported is used.
func (r Registry) Register(_ context.Context, socket, name, endpoint string, versions []string) error {
	m := r.m
	i := slices.IndexFunc(versions, func(v string) bool { return slices.Contains(services, v) })
	switch {
	case name == "":
		return errors.New("DRA driver name is empty")
	case len(versions) == 0:
		return errors.New("empty list of supported gRPC services (aka supported versions)")
	case i < 0:
		return fmt.Errorf("none of services supported by the plugin (%q) are supported by the kubelet (%q)", versions, services)
	case !filepath.IsAbs(endpoint):
		return fmt.Errorf("the endpoint %q is no absolute path", endpoint)
	}
	conn, err := dialer.Dial(endpoint, grpc.WithChainUnaryInterceptor(timed(name)), grpc.WithConnectParams(reconnect))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(m.ctx)
	p := &plugin{driver: name, socket: socket, endpoint: endpoint, service: versions[i], conn: conn, stop: stop,
		reports: m.pace(), connections: m.pace()}
	var changed func()
	m.locked(func() {
		m.remove(socket, name)
		m.plugins[name] = append(m.plugins[name], p)
		m.watchSlices(name)
		changed = m.driversChanged
	})
	m.loops.Go(func() {
		guard.GoOn(ctx, m.log, "the connection to a DRA driver", func(ctx context.Context) { m.follow(ctx, p) })
	})
	if m.health != nil {
		m.loops.Go(func() {
			guard.GoOn(ctx, m.log, "the health of devices", func(ctx context.Context) { m.watchHealth(ctx, p) })
		})
	}
	changed()
	return nil
}

// timed measures the calls of a driver.
func timed(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, conn, opts...)
		metrics.Since(metrics.DriverTime, began, driver, method, status.Code(err).String())
		return err
	}
}

// Deregister implements pluginwatch.Handler.
func (r Registry) Deregister(socket, name string) {
	r.m.locked(func() {
		r.m.remove(socket, name)
		r.m.watchSlices(name)
	})
}

// remove ends the plugin of a socket. The caller holds mu.
func (m *Manager) remove(socket, name string) {
	m.plugins[name] = slices.DeleteFunc(m.plugins[name], func(p *plugin) bool {
		if p.socket != socket {
			return false
		}
		p.stop()
		_ = p.conn.Close() // calls in progress fail, and are repeated
		return true
	})
	if len(m.plugins[name]) == 0 {
		delete(m.plugins, name)
	}
}

// follow keeps a plugin connected, and records whether it is.
func (m *Manager) follow(ctx context.Context, p *plugin) {
	for {
		state := p.conn.GetState()
		m.locked(func() {
			if connected := state == connectivity.Ready; connected != p.connected {
				p.connected = connected
				m.log.Info("connection to a DRA driver changed", "driver", p.driver, "endpoint", p.endpoint,
					"connected", connected)
			}
			if ctx.Err() == nil {
				m.watchSlices(p.driver)
			}
		})
		if state == connectivity.Idle && p.connections.Wait(ctx) == nil {
			p.conn.Connect()
		}
		if state == connectivity.Shutdown || !p.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// watchHealth receives the health of a driver's devices until ctx ends, or the plugin turns out not to report any.
func (m *Manager) watchHealth(ctx context.Context, p *plugin) {
	expiry := time.AfterFunc(time.Hour, func() { m.notify(p.driver, m.allDevices(p.driver)) })
	defer expiry.Stop()
	for ctx.Err() == nil {
		err := m.receiveHealth(ctx, p, expiry)
		var gone sets.Set[deviceID]
		m.locked(func() {
			if !slices.ContainsFunc(m.plugins[p.driver], func(o *plugin) bool { return o != p && o.connected }) {
				gone = m.health.drop(p.driver)
			}
		})
		if m.ctx.Err() == nil {
			m.notify(p.driver, gone)
		}
		if status.Code(err) == codes.Unimplemented || !pause(ctx, healthPause) {
			return
		}
	}
}

// receiveHealth handles one stream. expiry is set for the time when a report expires without another one.
func (m *Manager) receiveHealth(ctx context.Context, p *plugin, expiry *time.Timer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return dialer.Stream[sets.Set[deviceID]]{
		Open: func(ctx context.Context) (func() (sets.Set[deviceID], error), error) {
			stream, err := healthapi.NewDRAResourceHealthClient(p.conn).NodeWatchResources(ctx,
				&healthapi.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
			return func() (changed sets.Set[deviceID], err error) {
				list, err := stream.Recv()
				if err != nil {
					return nil, err
				}
				var until time.Duration
				m.locked(func() { changed, until = m.health.take(time.Now(), p.driver, list.GetDevices()) })
				if until > 0 {
					expiry.Reset(until + time.Second)
				}
				return changed, nil
			}, err
		},
		Join: sets.Set[deviceID].Union,
		Take: func(changed sets.Set[deviceID]) { m.notify(p.driver, changed) },
		Pace: p.reports, Log: m.log,
	}.Follow(ctx)
}

func (m *Manager) allDevices(driver string) (out sets.Set[deviceID]) {
	m.locked(func() { out = sets.KeySet(m.health[driver]) })
	return out
}

// notify reports a change in the health of devices to the pods that use them.
func (m *Manager) notify(driver string, devices sets.Set[deviceID]) {
	if len(devices) == 0 {
		return
	}
	var uids []string
	var changed func(uid string)
	m.locked(func() { uids, changed = m.table.users(driver, devices), m.healthChanged })
	for _, uid := range uids {
		changed(uid)
	}
}
