package registration

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

type supervisorsWork = supervisors.Work

func quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		sizes Sizes
		want  map[v1.ResourceName][2]string // capacity, allocatable
	}{
		"the machine": {Sizes{MaxPods: 110, LocalStorage: true}, map[v1.ResourceName][2]string{
			"cpu": {"4", "4"}, "memory": {"8Gi", "8128Mi"}, "pods": {"110", "110"}, "ephemeral-storage": {"100Gi", "100Gi"},
			"hugepages-2Mi": {"64Mi", "64Mi"}, "hugepages-1Gi": {"0", "0"},
		}},
		"reserved": {Sizes{
			MaxPods: 110, PodsPerCore: 10, LocalStorage: true,
			System:       map[string]string{"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
			Kube:         map[string]string{"cpu": "250m", "pid": "100"},
			EvictionHard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
		}, map[v1.ResourceName][2]string{
			"cpu": {"4", "3250m"}, "memory": {"8Gi", "7004Mi"}, "pods": {"40", "40"},
			"ephemeral-storage": {"100Gi", "95563022176"},
		}},
		"no local storage": {Sizes{MaxPods: 3, PodsPerCore: 10},
			map[v1.ResourceName][2]string{"pods": {"3", "3"}, "ephemeral-storage": {"", ""}}},
		"thresholds left out": {Sizes{IgnoreEviction: true, EvictionHard: map[string]string{"memory.available": "1Gi"}},
			map[v1.ResourceName][2]string{
				"memory": {"8Gi", "8128Mi"},
			}},
		"more than there is": {Sizes{LocalStorage: true, System: map[string]string{"cpu": "9", "memory": "9Gi",
			"ephemeral-storage": "1Ti"}}, map[v1.ResourceName][2]string{
			"cpu": {"4", "0"}, "memory": {"8Gi", "0"}, "ephemeral-storage": {"100Gi", "0"},
		}},
	} {
		capacity := c.sizes.Capacity(machine)
		less := c.sizes.Allocatable(capacity)
		for resourceName, want := range c.want {
			for i, list := range []v1.ResourceList{capacity, less} {
				got, there := list[resourceName]
				if there != (want[i] != "") || there && got.Cmp(resource.MustParse(want[i])) != 0 {
					t.Errorf("%s: %s is %s, want %s", name, resourceName, got.String(), want[i])
				}
			}
		}
	}
}

func TestComposing(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := facts{machine: machine, runtime: wellRuntime(), addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"),
		netip.MustParseAddr("2001:db8::7")}}
	f.machine.Swap = 1 << 30
	node := compose(desired(), Sizes{MaxPods: 110}, f, desired().initial(), now, now)
	want := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeReady}
	for i, c := range node.Status.Conditions {
		if c.Type != want[i] || !c.LastHeartbeatTime.Time.Equal(now) || !c.LastTransitionTime.Time.Equal(now) {
			t.Errorf("condition %d: %+v", i, c)
		}
	}
	expect(t, "info", node.Status.NodeInfo, v1.NodeSystemInfo{
		MachineID: "m", SystemUUID: "s", BootID: "b", KernelVersion: "6.1", OSImage: "Debian",
		ContainerRuntimeVersion: "containerd://2.4.2",
		KubeletVersion:          "v1.36.3+playlet-x", OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		Swap: &v1.NodeSwapStatus{Capacity: &f.machine.Swap},
	})
	expect(t, "addresses", node.Status.Addresses, []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeInternalIP, Address: "2001:db8::7"},
		{Type: v1.NodeHostName, Address: "node"},
	})
	later := compose(desired(), Sizes{MaxPods: 110}, f, node, now, now.Add(time.Minute))
	if differs(node, later) {
		t.Error("the same is different a minute later")
	}
	if c := condition(later, v1.NodeReady); !c.LastTransitionTime.Time.Equal(now) ||
		!c.LastHeartbeatTime.Time.Equal(now.Add(time.Minute)) {
		t.Errorf("%+v", c)
	}
	// The node controller set the conditions to Unknown.
	*condition(later, v1.NodeReady) = v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionUnknown,
		LastTransitionTime: metav1.NewTime(now.Add(time.Second))}
	back := compose(desired(), Sizes{MaxPods: 110}, f, later, now, now.Add(2*time.Minute))
	if c := condition(back, v1.NodeReady); c.Status != v1.ConditionTrue ||
		!c.LastTransitionTime.Time.Equal(now.Add(2*time.Minute)) {
		t.Errorf("%+v", c)
	}
}

func TestWhatKeepsANodeFromBeingReady(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	away := Runtime{Since: now.Add(-10 * time.Second), Reason: "it is away"}
	gone := Runtime{Since: now.Add(-time.Minute), Reason: "it is away"}
	noNet := wellRuntime()
	noNet.NetworkReady, noNet.NetworkReason = false, "NetworkPluginNotReady"
	for name, c := range map[string]struct {
		facts facts
		was   bool
		began time.Time
		want  []string
	}{
		"nothing":       {facts{runtime: wellRuntime()}, false, now, nil},
		"never heard":   {facts{}, false, now, []string{"the container runtime was not heard yet"}},
		"not heard yet": {facts{}, true, now, nil},
		"not heard for long": {facts{}, true, now.Add(-time.Minute),
			[]string{"the container runtime was not heard yet"}},
		"away for a moment":          {facts{runtime: away}, true, now, nil},
		"away, and not ready before": {facts{runtime: away}, false, now, []string{"container runtime not ready: it is away"}},
		"away":                       {facts{runtime: gone}, true, now, []string{"container runtime not ready: it is away"}},
		"no network": {facts{runtime: noNet}, true, now,
			[]string{"container runtime network not ready: NetworkPluginNotReady"}},
		"no network, and why": {facts{runtime: noNet, network: "no plugin"}, true, now,
			[]string{"container runtime network not ready: NetworkPluginNotReady: no plugin"}},
		"a machine that hides": {facts{runtime: wellRuntime(), machineErr: fmt.Errorf("no /proc")}, true, now,
			[]string{"the machine cannot be read: no /proc"}},
		"a machine that hides little": {facts{runtime: wellRuntime(), machine: machine, machineErr: fmt.Errorf("no disk")}, true,
			now, nil},
	} {
		expect(t, name, c.facts.unready(c.was, c.began, now), c.want)
	}
}

func TestACloudControllerManagersNode(t *testing.T) {
	w := desired()
	w.ExternalCloud, w.NodeIPs, w.Taints = true, []netip.Addr{netip.MustParseAddr("192.0.2.7")},
		[]v1.Taint{{Key: "a", Effect: v1.TaintEffectNoExecute}}
	node := w.initial()
	if len(node.Spec.Taints) != 2 || node.Spec.Taints[1].Key != taintUninitialized ||
		node.Annotations[annotationNodeIP] != "192.0.2.7" {
		t.Errorf("%+v", node)
	}
	set := []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "198.51.100.1"}}
	expect(t, "addresses of the cloud", w.addresses(set, w.NodeIPs), set)
	w.NodeIPs = nil
	expect(t, "addresses to be told", w.addresses(nil, []netip.Addr{netip.MustParseAddr("192.0.2.7")}),
		[]v1.NodeAddress{{Type: v1.NodeHostName, Address: "node"}})
	if again := w.reconciled(node, false); again.Annotations[annotationNodeIP] != "" || node.Annotations[annotationNodeIP] == "" {
		t.Errorf("%v, was %v", again.Annotations, node.Annotations)
	}
}

func TestPressuresThatWereNotMeasured(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := found()
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue,
		Reason: "KubeletHasDiskPressure"}}
	setPressures(node, nil, now)
	if c := condition(node, v1.NodeDiskPressure); c.Status != v1.ConditionTrue {
		t.Errorf("an agent that has just begun says %+v", c)
	}
	setPressures(node, []messages.Pressure{{Type: v1.NodeDiskPressure, Reason: "KubeletHasNoDiskPressure"}}, now)
	if c := condition(node, v1.NodeDiskPressure); c.Status != v1.ConditionFalse || !c.LastTransitionTime.Time.Equal(now) {
		t.Errorf("%+v", c)
	}
}

func TestImages(t *testing.T) {
	all := []*runtimeapi.Image{
		{Id: "b", Size: 5, RepoTags: []string{"b:1"}}, {Id: "a", Size: 5, RepoTags: []string{"a:1"},
			RepoDigests: []string{"a@sha256:1"}},
		{Id: "c", Size: 9, RepoTags: []string{"1", "2", "3", "4", "5", "6"}},
	}
	expect(t, "two", imagesOf(all, 2), []v1.ContainerImage{
		{Names: []string{"1", "2", "3", "4", "5"}, SizeBytes: 9}, {Names: []string{"a@sha256:1", "a:1"}, SizeBytes: 5},
	})
	expect(t, "all", len(imagesOf(all, -1)), 3)
	expect(t, "none", len(imagesOf(all, 0)), 0)
}

func TestVersionsOfRuntimes(t *testing.T) {
	for given, want := range map[string]string{"v2.4.2": "2.4.2", "1.6.20~ds1": "1.6.20", "1.7.0-rc.1": "1.7.0-rc.1",
		"": "Unknown", "odd": "odd"} {
		if got := plainVersion(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

func TestReadingAMachine(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"proc/meminfo": "MemTotal:       1024 kB\nMemFree: 1 kB\nSwapTotal:      512 kB\n", "proc/sys/kernel/osrelease": "6.1\n",
		"proc/sys/kernel/random/boot_id":                        "b\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n", "sys/devices/system/cpu/online": "0-2\n",
		"sys/class/dmi/id/product_uuid": "u\n",
		"lib/dbus/machine-id":           "m\n", "etc/os-release": "NAME=x\nPRETTY_NAME=\"A B\"\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := Places{filepath.Join(dir, "proc"), filepath.Join(dir, "sys"), filepath.Join(dir, "etc"), filepath.Join(dir, "lib"), dir}
	reader := p.Reader()
	got, err := reader.Read(t.Context())
	if err != nil || got.Disk <= 0 {
		t.Fatal(got, err)
	}
	got.Disk = 0
	expect(t, "the machine", got, Machine{
		CPUs: 3, Memory: 1 << 20, Swap: 512 << 10, HugePages: map[int64]int64{2 << 20: 6 << 20}, MachineID: "m", SystemUUID: "u",
		BootID: "b", Kernel: "6.1", OSImage: "A B",
	})
	if _, err := (Places{Proc: dir, Sys: dir, Etc: dir, Lib: dir,
		RootDir: filepath.Join(dir, "none")}).Reader().Read(t.Context()); err == nil {
		t.Error("nothing there, and no error")
	}
}

// A hung disk hides no other value, and its last known size stays.
func TestADiskThatHangs(t *testing.T) {
	back := make(chan struct{})
	defer close(back)
	reader := HostPlaces(t.TempDir()).Reader()
	first, err := reader.Read(t.Context())
	if err != nil || first.Disk == 0 {
		t.Fatal(first, err)
	}
	reader.disk = overdue.New("the disk", time.Millisecond, func() (int64, error) {
		<-back
		return 0, nil
	})
	for range 2 {
		got, err := reader.Read(t.Context())
		if err == nil || !strings.Contains(err.Error(), "the disk: it is being read since") {
			t.Error(err)
		}
		expect(t, "the machine", got, first)
	}
	reader.files = overdue.New("the machine", time.Hour, func() (Machine, error) {
		return Machine{CPUs: 3},
			errors.New("no memory")
	})
	got, _ := reader.Read(t.Context())
	if got.CPUs != 3 || got.Memory != first.Memory || !reflect.DeepEqual(got, reader.Last()) {
		t.Errorf("%+v, last %+v, first %+v", got, reader.Last(), first)
	}
}

// Extended resources of others are allocatable as a whole, follow each change, and disappear when they are removed.
func TestResourcesOfOthers(t *testing.T) {
	st := &v1.NodeStatus{Capacity: v1.ResourceList{"example.com/dongle": *quantity(4), "hugepages-4Mi": *quantity(1)},
		Allocatable: v1.ResourceList{
			"example.com/dongle": *quantity(2), "example.com/gone": *quantity(1), "hugepages-4Mi": *quantity(1),
		}}
	setSizes(st, Sizes{MaxPods: 110}, machine)
	if q := st.Allocatable["example.com/dongle"]; q.Value() != 4 {
		t.Errorf("%s are allocatable", q.String())
	}
	for _, name := range []v1.ResourceName{"example.com/gone", "hugepages-4Mi"} {
		if has(st.Allocatable, name) || has(st.Capacity, name) {
			t.Errorf("%s is still there: %v", name, st)
		}
	}
}

// Device plugins report capacity and allocatable themselves; reservations do not apply.
func TestDevicesOfPlugins(t *testing.T) {
	st := &v1.NodeStatus{Capacity: v1.ResourceList{"example.com/gpu": *quantity(9), "example.com/dongle": *quantity(2)}}
	setSizes(st, Sizes{MaxPods: 110, Devices: func() (capacity, allocatable v1.ResourceList) {
		return v1.ResourceList{"example.com/gpu": *quantity(4), "example.com/nic": *quantity(0)},
			v1.ResourceList{"example.com/gpu": *quantity(3), "example.com/nic": *quantity(0)}
	}}, machine)
	for name, want := range map[v1.ResourceName][2]int64{"example.com/gpu": {4, 3}, "example.com/nic": {}, "example.com/dongle": {2, 2}} {
		there, free := st.Capacity[name], st.Allocatable[name]
		if there.Value() != want[0] || free.Value() != want[1] || !has(st.Allocatable, name) {
			t.Errorf("%s: %s there, %s allocatable", name, there.String(), free.String())
		}
	}
}

// Extended resources of an earlier machine with this name are removed.
func TestANodeOfAnotherMachine(t *testing.T) {
	for name, c := range map[string]struct {
		was       v1.NodeSystemInfo
		forgotten bool
		want      int64
	}{
		"the same":       {was: v1.NodeSystemInfo{MachineID: "m", SystemUUID: "s"}, want: 2},
		"not known":      {want: 2},
		"set up anew":    {was: v1.NodeSystemInfo{MachineID: "other", SystemUUID: "s"}},
		"other hardware": {was: v1.NodeSystemInfo{MachineID: "m", SystemUUID: "other"}},
		"forgotten":      {was: v1.NodeSystemInfo{MachineID: "m", SystemUUID: "s"}, forgotten: true},
	} {
		was := desired().initial()
		was.Status.NodeInfo, was.Status.Capacity = c.was, v1.ResourceList{"example.com/dongle": *quantity(2)}
		node := compose(desired(), Sizes{MaxPods: 110, Forgotten: func() bool { return c.forgotten }},
			facts{machine: machine}, was, time.Time{}, time.Time{})
		there, free := node.Status.Capacity["example.com/dongle"], node.Status.Allocatable["example.com/dongle"]
		if there.Value() != c.want || free.Value() != c.want || !has(node.Status.Allocatable, "example.com/dongle") {
			t.Errorf("%s: %s there, %s allocatable", name, there.String(), free.String())
		}
	}
}

// Pod statuses have the kubelet's host addresses, which outlive the Node and a restart of the actor.
func TestAddressesThatPodsTell(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Desired.ExternalCloud = true })
	w.start()
	for _, c := range []struct{ given, want string }{
		{"Hostname=node", ""},
		{"ExternalIP=198.51.100.1 Hostname=192.0.2.2 InternalIP=192.0.2.9 InternalIP=192.0.2.10", "192.0.2.9"},
		{"InternalIP=name InternalIP=2001:db8::7 ExternalIP=2001:db8::8 ExternalIP=198.51.100.1 ExternalIP=198.51.100.2",
			"2001:db8::7 198.51.100.1"},
		{"Hostname=node", "2001:db8::7 198.51.100.1"},
	} {
		node := found()
		for one := range strings.FieldsSeq(c.given) {
			kind, address, _ := strings.Cut(one, "=")
			node.Status.Addresses = append(node.Status.Addresses,
				v1.NodeAddress{Type: v1.NodeAddressType(kind), Address: address})
		}
		w.put(node)
		w.sees()
		expect(t, c.given, strings.Join(w.state.Load().Addresses, " "), c.want)
	}
	w.says(nil, nil)
	w.start()
	expect(t, "without a Node", strings.Join(w.state.Load().Addresses, " "), "2001:db8::7 198.51.100.1")
}

// NotReady reports the condition Ready of the API server's Node.
func TestWhyTheNodeIsNotReady(t *testing.T) {
	node := func(c ...v1.NodeCondition) *v1.Node { return &v1.Node{Status: v1.NodeStatus{Conditions: c}} }
	for _, c := range []struct {
		node *v1.Node
		want string
	}{
		{nil, ""},
		{node(), "the Node has no condition Ready"},
		{node(v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "m"}), ""},
		{node(v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: "m"}), "KubeletNotReady: m"},
		{node(v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "m"}), "NodeStatusUnknown: m"},
	} {
		if got := notReady(c.node); got != c.want {
			t.Errorf("%+v: %q, want %q", c.node, got, c.want)
		}
	}
}
