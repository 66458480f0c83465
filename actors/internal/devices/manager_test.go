package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/devices/devicestest"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitLimit = 5 * time.Minute // reached by a hang only

// rig is a manager behind its socket.
type rig struct {
	*testing.T
	root string
	*Manager
	reported chan string
	lists    atomic.Int32 // that the plugins sent
	stop     func()
	log      lines
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := os.MkdirTemp("", "dev") // a short path: unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, root: root, reported: make(chan string, 100)}
	r.start()
	t.Cleanup(func() {
		r.stop()
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start begins a life of the agent.
func (r *rig) start() {
	r.Helper()
	m := New(r.root, topology.MaskOf(0, 1), slog.New(slog.NewTextHandler(&r.log, nil)))
	m.Notify(func(uid string) { r.reported <- uid }, func() { r.lists.Add(1) })
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		r.Fatal(err)
	}
	if err := m.Clear(); err != nil {
		r.Fatal(err)
	}
	l, err := net.Listen("unix", m.SocketPath())
	if err != nil {
		r.Fatal(err)
	}
	s := &http.Server{Handler: m.Handler(), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	r.Manager, r.stop = m, func() { m.Close(); _ = s.Close(); <-done }
}

// lines collects log output.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (r *rig) plugin(ids ...string) *devicestest.Plugin {
	p := devicestest.New(r.dir, gpu, ids...)
	r.Cleanup(p.Stop)
	return p
}

func (r *rig) begin(p *devicestest.Plugin) {
	r.Helper()
	if err := p.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
}

// await waits until so many devices are there and allocatable.
func (r *rig) await(capacity, allocatable int64) {
	r.Helper()
	for end := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		all, free := r.Capacity()
		c, f := all[gpu], free[gpu]
		if c.Value() == capacity && f.Value() == allocatable {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("%s there, %s allocatable", c.String(), f.String())
		}
	}
}

// asks is a pod with containers by name: "i:" begins an init container's, "s:" a sidecar's.
func asks(uid string, count string, names ...string) *v1.Pod {
	p := &v1.Pod{}
	p.UID = types.UID(uid)
	for _, name := range names {
		kind, name, _ := strings.Cut(name, ":")
		c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{gpu: resource.MustParse(count),
			"cpu": resource.MustParse("1")}}}
		switch kind {
		case "s":
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "i":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func (r *rig) ids(uid, container string) []string { return r.has(holder{uid, container}, gpu).ids() }

// A pod gets a registered plugin's device with all parts of the plugin's answer. Restarts of the agent and of the plugin
// preserve it.
func TestADeviceIsAllocatedAndKept(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a", "b")
	p.PreStart = true
	p.Answer = func(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
		return &pluginapi.ContainerAllocateResponse{
			Envs:        map[string]string{"GPU": strings.Join(ids, ",")},
			Mounts:      []*pluginapi.Mount{{HostPath: "/h", ContainerPath: "/c", ReadOnly: true}},
			Devices:     []*pluginapi.DeviceSpec{{HostPath: "/dev/h", ContainerPath: "/dev/c", Permissions: "rw"}},
			Annotations: map[string]string{"k": "v"}, CdiDevices: []*pluginapi.CDIDevice{{Name: "example.com/gpu=a"}},
		}, nil
	}
	r.begin(p)
	r.await(2, 2)
	pod := asks("u", "1", ":c")
	for range 2 { // asking again is the same question
		if err := r.allocatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, started int) {
		t.Helper()
		got, err := r.Prepare(t.Context(), pod, &pod.Spec.Containers[0])
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(got.Env) != 1 || got.Env[0].Value != "a" || got.Mounts[0].GetHostPath() != "/h" || !got.Mounts[0].GetReadonly() ||
			got.Devices[0].GetHostPath() != "/dev/h" || got.Devices[0].GetPermissions() != "rw" || got.Annotations["k"] != "v" ||
			got.CDIDevices[0].GetName() != "example.com/gpu=a" {
			t.Errorf("%s: %+v", what, got)
		}
		if len(p.Asked()) != 1 || len(p.Started()) != started {
			t.Errorf("%s: asked %v, started %v", what, p.Asked(), p.Started())
		}
		if all := r.Of("u", "c"); len(all) != 1 || all[0].GetDeviceIds()[0] != "a" || all[0].GetTopology() != nil {
			t.Errorf("%s: it has %v", what, all)
		}
	}
	expect("first", 1)
	r.stop()
	r.start()
	expect("restarted, without its plugin", 1) // the plugin has not registered since, so it is not called
	r.await(0, 0)
	if err := r.allocatePod(t.Context(), asks("v", "1", ":c")); err == nil || !strings.Contains(err.Error(), "no healthy devices present") {
		t.Errorf("another got a device: %v", err)
	}
	p.Stop()
	r.begin(p)
	r.await(2, 2)
	expect("restarted, with its plugin", 2)
	if err := r.allocatePod(t.Context(), asks("v", "2", ":c")); err == nil || !strings.Contains(err.Error(), "Requested: 2, Available: 1") {
		t.Errorf("more than are free: %v", err)
	}
	if err := r.allocatePod(t.Context(), asks("w", "1", ":c")); err != nil || r.ids("w", "c")[0] != "b" {
		t.Errorf("%v: %v", r.ids("w", "c"), err)
	}
	r.Retain(map[string]string{"w": "w"})
	if err := r.allocatePod(t.Context(), asks("v", "1", ":c")); err != nil || r.ids("v", "c")[0] != "a" {
		t.Errorf("what a pod gave back: %v: %v", r.ids("v", "c"), err)
	}
	r.Release("v")
	if len(r.ids("v", "c")) > 0 || r.ids("w", "c")[0] != "b" {
		t.Errorf("after the release of one pod: %v and %v", r.ids("v", "c"), r.ids("w", "c"))
	}
	r.stop()
	r.start() // the disk has it
	if len(r.ids("v", "c")) > 0 || len(r.ids("w", "c")) == 0 {
		t.Errorf("after the release of one pod and a restart: %v and %v", r.ids("v", "c"), r.ids("w", "c"))
	}
}

// Init containers lend their devices to those after them; a sidecar keeps its own.
func TestInitContainersLendTheirDevices(t *testing.T) {
	r := newRig(t)
	r.begin(r.plugin("a", "b", "c"))
	r.await(3, 3)
	if err := r.allocatePod(t.Context(), asks("u", "1", "i:first", "s:side", "i:second", ":app", ":other")); err != nil {
		t.Fatal(err)
	}
	for container, want := range map[string]string{"first": "a", "side": "a", "second": "b", "app": "b", "other": "c"} {
		if got := r.ids("u", container); len(got) != 1 || got[0] != want {
			t.Errorf("%s has %v, want %s", container, got, want)
		}
	}
	r.mu.Lock()
	r.inventory.release(holder{"u", "app"}, gpu) // as where the checkpoint was lost
	r.mu.Unlock()
	pod := asks("u", "1", "i:first", "s:side", "i:second", ":app", ":other")
	if _, err := r.Prepare(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || !slices.Equal(r.ids("u", "app"), []string{"b"}) {
		t.Errorf("allocated again: %v: %v", r.ids("u", "app"), err)
	}
}

// For a pod that goes while its plugin is asked nothing more is asked.
func TestEndingPod_RequestsNoFurtherDevices(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a", "b")
	p.Answer = func([]string) (*pluginapi.ContainerAllocateResponse, error) {
		r.Retain(nil)
		return &pluginapi.ContainerAllocateResponse{}, nil
	}
	r.begin(p)
	r.await(2, 2)
	if err := r.allocatePod(t.Context(), asks("u", "1", ":c", ":d")); err == nil || len(p.Asked()) != 1 {
		t.Errorf("asked for %v: %v", p.Asked(), err)
	}
}

// A pod that cannot have all has none, and its plugin's word is the reason.
func TestAPodThatIsRefusedHasNothing(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a", "b")
	p.Answer = func(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
		if ids[0] == "b" {
			return nil, errors.New("b is on fire")
		}
		return &pluginapi.ContainerAllocateResponse{}, nil
	}
	r.begin(p)
	r.await(2, 2)
	if err := r.allocatePod(t.Context(), asks("u", "1", ":c", ":d")); err == nil || !strings.Contains(err.Error(), "b is on fire") || !strings.Contains(err.Error(), gpu) {
		t.Errorf("%v", err)
	}
	if r.ids("u", "c") != nil || r.ids("u", "d") != nil {
		t.Errorf("it has %v and %v", r.ids("u", "c"), r.ids("u", "d"))
	}
}

// After a panic while handling a plugin's list, under any lock, the list is handled again.
func TestAPanicOverAListIsOvercome(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a")
	r.begin(p)
	r.await(1, 1)
	if err := r.allocatePod(t.Context(), asks("u", "1", ":c")); err != nil {
		t.Fatal(err)
	}
	called := make(chan struct{})
	r.Notify(func(string) { close(called); panic("broken") }, func() {})
	p.Set("!a")
	<-called
	var was *resourceState
	r.locked(func() { was, r.inventory.resources[gpu] = r.inventory.resources[gpu], nil }) // the next list panics with the lock
	p.Set("a", "b")
	for end := time.Now().Add(waitLimit); !strings.Contains(r.log.String(), "nil pointer"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the list was not taken: %s", r.log.String())
		}
	}
	r.locked(func() { r.inventory.resources[gpu] = was })
	r.await(2, 2)
}

// A plugin's preference decides between free devices.
func TestPreferredDevices(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a", "b", "c")
	p.Prefer = func(q *pluginapi.ContainerPreferredAllocationRequest) []string {
		if q.GetAllocationSize() != 2 || !slices.Equal(q.GetAvailableDeviceIDs(), []string{"a", "b", "c"}) {
			t.Errorf("asked %v", q)
		}
		return []string{"c", "b"}
	}
	r.begin(p)
	r.await(3, 3)
	if err := r.allocatePod(t.Context(), asks("u", "2", ":c")); err != nil || !slices.Equal(r.ids("u", "c"), []string{"b", "c"}) {
		t.Errorf("%v: %v", r.ids("u", "c"), err)
	}
}

// While a plugin takes its time for one pod, another pod is served.
func TestASlowPluginKeepsNobodyElse(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a", "b")
	slow := make(chan struct{})
	asked := make(chan struct{}, 1)
	p.Answer = func(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
		if ids[0] == "a" {
			asked <- struct{}{}
			<-slow
		}
		return &pluginapi.ContainerAllocateResponse{}, nil
	}
	r.begin(p)
	r.await(2, 2)
	done := make(chan error, 1)
	go func() { done <- r.allocatePod(t.Context(), asks("u", "1", ":c")) }()
	<-asked
	if err := r.allocatePod(t.Context(), asks("v", "1", ":c")); err != nil || r.ids("v", "c")[0] != "b" {
		t.Errorf("%v: %v", r.ids("v", "c"), err)
	}
	close(slow)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Devices of a plugin that is gone stay as capacity. The pod with a failed device is notified.
func TestHealth(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a", "b")
	r.begin(p)
	r.await(2, 2)
	if err := r.allocatePod(t.Context(), asks("u", "1", ":c")); err != nil {
		t.Fatal(err)
	}
	lists := r.lists.Load()
	p.Set("!a", "b")
	select {
	case uid := <-r.reported:
		if uid != "u" {
			t.Errorf("told %s", uid)
		}
	case <-time.After(waitLimit):
		t.Fatal("nobody is told")
	}
	r.await(2, 1)
	for end := time.Now().Add(waitLimit); r.lists.Load() == lists; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new list is not reported")
		}
	}
	if h := r.Health("u", "c"); len(h) != 1 || h[0].Name != gpu || h[0].Resources[0].ResourceID != "a" ||
		h[0].Resources[0].Health != v1.ResourceHealthStatusUnhealthy {
		t.Errorf("%+v", h)
	}
	if all := r.Allocatable(); len(all) != 1 || all[0].GetDeviceIds()[0] != "b" {
		t.Errorf("allocatable are %v", all)
	}
	p.Stop()
	r.await(2, 0)
	p.Set("a", "b")
	r.begin(p)
	r.await(2, 2)
}

// Invalid registrations are refused.
func TestRefusedRegistrations(t *testing.T) {
	r := newRig(t)
	p := r.plugin()
	for _, c := range [][3]string{
		{"v1alpha1", gpu, "gpu.sock"}, {pluginapi.Version, "gpu", "gpu.sock"}, {pluginapi.Version, "kubernetes.io/gpu", "gpu.sock"},
		{pluginapi.Version, gpu, "../other.sock"},
	} {
		if err := p.Register(t.Context(), c[0], c[1], c[2]); err == nil {
			t.Errorf("%v is taken", c)
		}
	}
}

// A checkpoint that is damaged is kept aside; the agent starts all the same. A folder's other files stay, and sockets go.
func TestADamagedCheckpoint(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "device-plugins")
	path := filepath.Join(dir, "kubelet_internal_checkpoint")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m := New(root, topology.MaskOf(0, 1), slog.New(slog.DiscardHandler))
	defer m.Close()
	if _, err := os.Stat(path + ".corrupt"); err != nil {
		t.Error(err)
	}
	if err := m.allocatePod(context.Background(), asks("u", "1", ":c")); err != nil {
		t.Errorf("of no plugin's resource nothing is allocated: %v", err)
	}
	if err := m.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if !m.Forgotten() || m.Damage() == "" {
		t.Error("the damage is not told")
	}
}

// Where there is no checkpoint the Node is reset once, and not in the next life.
func TestAForgottenNodeIsResetOnce(t *testing.T) {
	root := t.TempDir()
	for _, forgotten := range []bool{true, false} {
		m := New(root, topology.MaskOf(0, 1), slog.New(slog.DiscardHandler))
		if m.Forgotten() != forgotten || m.Damage() != "" {
			t.Errorf("forgotten %v, damage %q", m.Forgotten(), m.Damage())
		}
		if m.Reset(); m.Forgotten() {
			t.Error("it is to be reset again")
		}
		m.Close()
	}
}

// A static pod that keeps its UID while its manifest changes gets the devices of the new request, and loses the others. A pod of
// the API server cannot change its request.
func TestAStaticPodChangesItsRequest(t *testing.T) {
	r := newRig(t)
	r.begin(r.plugin("a", "b", "c"))
	r.await(3, 3)
	static := func(count string, names ...string) *v1.Pod {
		p := asks("u", count, names...)
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		return p
	}
	for _, c := range []struct {
		pod  *v1.Pod
		want string
	}{
		{static("1", ":c"), "[a] []"}, {static("2", ":c"), "[a b] []"}, {static("1", ":other"), "[] [a]"}, {static("0", ":c"), "[] []"},
	} {
		if err := r.allocatePod(t.Context(), c.pod); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.ids("u", "c"), r.ids("u", "other")); got != c.want {
			t.Errorf("got devices %s, want %s", got, c.want)
		}
	}
	if err := r.allocatePod(t.Context(), asks("v", "1", ":c")); err != nil {
		t.Fatal(err)
	}
	err := r.allocatePod(t.Context(), asks("v", "2", ":c"))
	if err == nil || !strings.Contains(err.Error(), "changed request for resource") {
		t.Errorf("a pod of the API server: %v", err)
	}
}

// An error names the cause for the explanation: the devices that the pod lacks, or their plugin.
func TestAllocate_Causes(t *testing.T) {
	r := newRig(t)
	p := r.plugin("a", "b")
	r.begin(p)
	r.await(2, 2)
	expect := func(code messages.CauseCode, detail string) {
		t.Helper()
		err := r.allocatePod(t.Context(), asks("v", "2", ":c"))
		if err == nil {
			t.Fatal("the devices are allocated")
		}
		if c := messages.CauseOf(err); c.Code != code || c.Name != gpu || c.Detail != detail {
			t.Errorf("got cause %+v, want %s, %s", c, code, detail)
		}
	}
	if err := r.allocatePod(t.Context(), asks("u", "1", ":c")); err != nil {
		t.Fatal(err)
	}
	expect(messages.CauseNoDevices, "container c requests 2, and 1 of 2 are free")
	p.Set("!a", "!b")
	r.await(2, 0)
	expect(messages.CauseNoDevices, "none is healthy")
	p.Stop()
	for end := time.Now().Add(waitLimit); !strings.Contains(r.log.String(), "device plugin disconnected"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the plugin stays")
		}
	}
	r.await(2, 0)
	expect(messages.CauseNoDevicePlugin, "")
}
