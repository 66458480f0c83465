package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/playlet-dev/playlet/actors/resources/resourcestest"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

const gpu = "example.com/gpu"

// askingGPU is a manifest that asks for one.
func askingGPU(name string) string {
	return strings.ReplaceAll(`{apiVersion: v1, kind: Pod, metadata: {name: NAME, namespace: default}, spec: {terminationGracePeriodSeconds: 0,
  containers: [{name: c, image: busybox, command: [main, forever], resources: {limits: {example.com/gpu: 1}}}]}}`, "NAME", name)
}

// startPlugin has a plugin register.
func (r *rig) startPlugin(p *resourcestest.Plugin) {
	r.t.Helper()
	if err := p.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// devicesOf returns the devices of a pod's first container in the pod resources API, or "" if that has no such pod.
func (r *rig) devicesOf(name string) string {
	r.t.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(r.dir, "root", "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	list, err := podresources.NewPodResourcesListerClient(conn).List(context.Background(), &podresources.ListPodResourcesRequest{},
		grpc.WaitForReady(true))
	if status.Code(err) == codes.ResourceExhausted { // it was asked too often
		return "?"
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range list.GetPodResources() {
		if p.GetName() == name {
			for _, d := range p.GetContainers()[0].GetDevices() {
				return d.GetDeviceIds()[0]
			}
		}
	}
	return ""
}

// The Node reports a plugin's devices. A pod gets one with the plugin's settings, and keeps it after a restart of the agent.
// Another pod fails, as with a kubelet, until the device is free.
func TestADevicePlugin(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, sim.Options{}, "--node-status-update-frequency=100ms")
	r.start(nil)
	p := resourcestest.NewPlugin(filepath.Join(r.dir, "root", "device-plugins"), gpu, "a")
	defer p.Stop()
	p.Answer = func(ids []string) (*pluginapi.ContainerAllocateResponse, error) {
		return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"GPU": ids[0]}, Devices: []*pluginapi.DeviceSpec{
			{HostPath: "/dev/null", ContainerPath: "/dev/gpu", Permissions: "rw"}}}, nil
	}
	r.startPlugin(p)
	has := func(capacity, allocatable int64) {
		t.Helper()
		r.eventually("the Node tells of the devices", func() bool {
			n, err := r.api.CoreV1().Nodes().Get(context.Background(), "node", metav1.GetOptions{})
			if err != nil {
				return false
			}
			all, free := n.Status.Capacity[gpu], n.Status.Allocatable[gpu]
			return all.Value() == capacity && free.Value() == allocatable
		})
	}
	has(1, 1)
	r.binds(askingGPU("first"))
	runs := func() {
		t.Helper()
		r.eventually("it runs", func() bool { return r.pod("first").Status.Phase == v1.PodRunning })
		r.eventually("it has the device", func() bool { return r.devicesOf("first") == "a" })
	}
	runs()
	c := r.runtime.Snapshot().Container("first", "c")
	if len(c.Config.GetDevices()) != 1 || c.Config.GetDevices()[0].GetContainerPath() != "/dev/gpu" ||
		c.Config.GetEnvs()[0].GetKey() != "GPU" {
		t.Errorf("it was made with %v", c.Config)
	}
	fails := func(name, says string) {
		t.Helper()
		r.binds(askingGPU(name))
		r.eventually(name+" fails", func() bool { return r.pod(name).Status.Phase == v1.PodFailed })
		if s := r.pod(name).Status; s.Reason != "UnexpectedAdmissionError" || !strings.Contains(s.Message, says) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	fails("second", "Requested: 1, Available: 0")
	if s := r.pod("first").Status.ContainerStatuses[0].AllocatedResourcesStatus; len(s) != 1 || s[0].Name != gpu ||
		s[0].Resources[0].Health != v1.ResourceHealthStatusHealthy {
		t.Errorf("its devices are told as %+v", s)
	}
	p.Set("!a")
	r.eventually("the pod's status tells that its device is not healthy", func() bool {
		s := r.pod("first").Status.ContainerStatuses[0].AllocatedResourcesStatus
		return len(s) == 1 && s[0].Resources[0].Health == v1.ResourceHealthStatusUnhealthy
	})
	p.Set("a")
	r.stop()
	r.start(nil)
	runs()
	has(0, 0) // until it registers again
	fails("third", "no healthy devices present")
	p.Stop()
	r.startPlugin(p)
	has(1, 1)
	r.deletes("first", 0)
	r.eventually("it is gone", func() bool { return r.devicesOf("first") == "" })
	r.binds(askingGPU("fourth"))
	r.eventually("the next has the device", func() bool { return r.devicesOf("fourth") == "a" })
	if body := r.health(); !strings.Contains(body, "[+]listeners ok") {
		t.Error(body)
	}
}

// devicesAllocatable waits until the process has this number of usable devices.
func (r *rig) devicesAllocatable(want int64) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d devices can be allocated", want), func() bool {
		_, allocatable := r.agent.host.Devices.Capacity()
		q := allocatable[gpu]
		return q.Value() == want
	})
}

// registryPlugin has a plugin appear in plugins_registry, on a node with or without an API server.
func (r *rig) registryPlugin(ids ...string) *resourcestest.Plugin {
	r.t.Helper()
	dir := filepath.Join(r.dir, "root", "plugins_registry")
	p := resourcestest.NewPlugin(dir, gpu, ids...)
	r.t.Cleanup(p.Stop)
	if err := p.StartRegistry(dir); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// A plugin in plugins_registry is found by each life of the agent.
func TestAPluginInTheRegistry(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	r.start(nil)
	p := r.registryPlugin("a")
	for range 2 {
		r.devicesAllocatable(1)
		r.stop()
		r.start(nil)
	}
	r.devicesAllocatable(1)
	p.Stop()
	r.devicesAllocatable(0)
}

// A static pod of a node without API server waits for its device plugin, as explain reports. Then it has the device, over a
// restart of the agent, until it is removed. Another pod waits for the device.
func TestAStaticPodHasADevice(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	r.start(nil)
	r.write("first.yaml", askingGPU("first"))
	r.eventually("the first waits", func() bool { return r.waiting("first").Cause.Code == messages.CauseNoDevicePlugin })
	r.untilPrinted([]string{"explain", "first-node"}, "no device plugin for example.com/gpu is registered on this node")
	p := r.registryPlugin("a")
	has := func(name, id string) {
		t.Helper()
		r.eventually(name+" has device "+id, func() bool { return r.devicesOf(name+"-node") == id })
	}
	has("first", "a")
	r.eventually("it runs", func() bool { return r.runtime.Snapshot().Container("first-node", "c") != nil })
	was := r.runtime.Snapshot().Container("first-node", "c").ID
	r.write("second.yaml", askingGPU("second"))
	r.eventually("the second waits", func() bool { return r.waiting("second").Cause.Code == messages.CauseNoDevices })
	r.untilPrinted([]string{"explain", "second-node"}, "the node does not have enough example.com/gpu for the pod: container c "+
		"requests 1, and 0 of 1 are free")
	r.stop()
	r.start(nil)
	r.devicesAllocatable(1)
	has("first", "a")
	if c := r.runtime.Snapshot().Container("first-node", "c"); c == nil || c.ID != was {
		t.Error("its container was replaced with the agent")
	}
	r.remove("first.yaml")
	has("second", "a")
	if asked := p.Asked(); len(asked) != 2 {
		t.Errorf("the plugin was asked for %v, want each pod's device once", asked)
	}
}

// Whichever message of the wait and the allocation an actor is killed at, or is lost: the static pod has its device.
func TestAStaticPodsDeviceSurvivesKills(t *testing.T) {
	t.Parallel()
	var strikes []strike
	for _, s := range []spot{{"pods", "DevicesListed"}, {"pods", "ResourcesAllocated"}, {"resources", "AllocateResources"}} {
		strikes = append(strikes, strike{s, "before"}, strike{s, "after"}, strike{s, "lost"})
	}
	for _, s := range strikes {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			k := newKiller([]strike{s})
			r.start(k)
			r.write("first.yaml", askingGPU("first"))
			r.eventually("it waits", func() bool { return r.waiting("first").Cause.Code == messages.CauseNoDevicePlugin })
			p := r.registryPlugin("a", "b")
			r.eventually("it runs with the device", func() bool {
				return r.runtime.Snapshot().Container("first-node", "c") != nil && r.devicesOf("first-node") == "a"
			})
			if asked := p.Asked(); len(asked) != 1 || k.waits(s) {
				t.Errorf("the plugin was asked for %v; it was not struck: %v", asked, k.waits(s))
			}
		})
	}
}

// Whichever message of an allocation an actor is killed at, or is lost: the pod has its device, and no other one is taken.
func TestAnAllocationSurvivesKills(t *testing.T) {
	t.Parallel()
	var strikes []strike
	for _, s := range []spot{{"pods", "ResourcesAllocated"}, {"resources", "AllocateResources"}, {"resources", "allotment"}} {
		strikes = append(strikes, strike{s, "before"}, strike{s, "after"})
		if s.message != "allotment" { // the result of an actor's own work
			strikes = append(strikes, strike{s, "lost"})
		}
	}
	for _, s := range strikes {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			r := newClusterRig(t, sim.Options{})
			k := newKiller([]strike{s})
			r.start(k)
			p := resourcestest.NewPlugin(filepath.Join(r.dir, "root", "device-plugins"), gpu, "a", "b")
			defer p.Stop()
			r.startPlugin(p)
			r.devicesAllocatable(2)
			r.binds(askingGPU("first"))
			r.eventually("it has the device", func() bool {
				return r.pod("first").Status.Phase == v1.PodRunning && r.devicesOf("first") == "a"
			})
			if asked := p.Asked(); len(asked) != 1 || k.waits(s) {
				t.Errorf("the plugin was asked for %v; it was not struck: %v", asked, k.waits(s))
			}
		})
	}
}
