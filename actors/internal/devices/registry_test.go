package devices

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/playlet-dev/playlet/actors/internal/devices/devicestest"
	"github.com/playlet-dev/playlet/actors/internal/pluginwatch"
)

// watch begins to watch for plugins, until the test or the rig stops.
func (r *rig) watch() {
	w := pluginwatch.Watcher{Dir: r.registry(), Log: slog.New(slog.DiscardHandler),
		Retry:    func(int) time.Duration { return 100 * time.Millisecond },
		Handlers: map[string]pluginwatch.Handler{registration.DevicePlugin: r.Registry()}}
	stopWatch, stop := w.Start(), r.stop
	r.stop = func() { stopWatch(); stop() }
}

func (r *rig) registry() string { return filepath.Join(r.root, "plugins_registry") }

// named returns a plugin of a resource that registers by a socket.
func (r *rig) named(resource string, ids ...string) *devicestest.Plugin {
	p := devicestest.New(r.registry(), resource, ids...)
	r.Cleanup(p.Stop)
	return p
}

func (r *rig) appears(p *devicestest.Plugin) {
	r.Helper()
	if err := p.StartRegistry(r.registry()); err != nil {
		r.Fatal(err)
	}
}

// status waits until the plugin was notified of its registration.
func (r *rig) status(p *devicestest.Plugin) *registration.RegistrationStatus {
	r.Helper()
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s := p.Registered(); s != nil {
			return s
		}
	}
	r.Fatal("the plugin is not notified")
	return nil
}

// A plugin whose socket appears has its devices allocated. After a restart of the agent it registers without its own doing, and
// without its socket it is gone.
func TestRegistry_ThePluginIsItsSocket(t *testing.T) {
	r := newRig(t)
	r.watch()
	p := r.named(gpu, "a", "b")
	r.appears(p)
	r.await(2, 2)
	if s := r.status(p); !s.GetPluginRegistered() || s.GetError() != "" {
		t.Errorf("notified of %v", s)
	}
	if err := r.allocatePod(t.Context(), asks("u", "1", ":c")); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.start()
	r.watch()
	r.await(2, 2)
	if got := r.Of("u", "c"); len(got) != 1 || got[0].GetDeviceIds()[0] != "a" || len(p.Asked()) != 1 {
		t.Errorf("after a restart the container has %v; the plugin was asked for %v", got, p.Asked())
	}
	if err := os.Remove(filepath.Join(r.registry(), "gpu.sock")); err != nil { // its process lives on
		t.Fatal(err)
	}
	r.await(2, 0)
	if err := r.allocatePod(t.Context(), asks("v", "1", ":c")); err == nil || !strings.Contains(err.Error(), "no healthy devices present") {
		t.Errorf("without its plugin: %v", err)
	}
	p.Stop()
	r.appears(p)
	r.await(2, 2)
}

// The end of a socket leaves the plugin of another socket, and one that registered itself.
func TestRegistry_AnotherSocketsPluginStays(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a")
	r.begin(p)
	r.await(1, 1)
	r.Registry().Deregister("/other.sock", gpu)
	r.Registry().Deregister("/other.sock", "example.com/none")
	if err := r.allocatePod(t.Context(), asks("u", "1", ":c")); err != nil {
		t.Error(err)
	}
}

// A plugin is notified of the reason of its refusal, in the kubelet's words. A plugin that does not answer is refused.
func TestRegistry_Refusals(t *testing.T) {
	r := newRig(t)
	r.watch()
	old := r.named(gpu)
	old.Versions = []string{"v1alpha1"}
	for want, p := range map[string]*devicestest.Plugin{
		"manager version, v1beta1, is not among plugin supported versions [v1alpha1]":            old,
		`invalid name of device plugin socket: the ResourceName "kubernetes.io/card" is invalid`: r.named("kubernetes.io/card"),
		`invalid name of device plugin socket: the ResourceName "board" is invalid`:              r.named("board"),
	} {
		r.appears(p)
		if s := r.status(p); s.GetPluginRegistered() || s.GetError() != want {
			t.Errorf("got %v, want %s", s, want)
		}
	}
	err := r.Registry().Register(t.Context(), "/a.sock", gpu, "a.sock", []string{"v1beta1"})
	if err == nil || err.Error() != `the endpoint "a.sock" is no absolute path` {
		t.Errorf("a relative endpoint: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err = r.Registry().Register(ctx, "/a.sock", gpu, "/none.sock", []string{"v1beta1"})
	if err == nil || !strings.Contains(err.Error(), "failed to get device plugin options") {
		t.Errorf("a plugin that is not there: %v", err)
	}
	if capacity, _ := r.Capacity(); len(capacity) > 0 {
		t.Errorf("the node has %v", capacity)
	}
	if _, err := os.Stat(filepath.Join(r.registry(), "gpu.sock")); errors.Is(err, os.ErrNotExist) {
		t.Error("the socket of a refused plugin was removed")
	}
}
