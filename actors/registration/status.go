package registration

import (
	"cmp"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/messages"
)

// facts are the gathered inputs of the status.
type facts struct {
	machine    Machine
	machineErr error
	addresses  []netip.Addr
	addressErr error
	runtime    Runtime
	network    string // the fault in the network's configuration, if the runtime reports that it is not ready
	images     []v1.ContainerImage
	imagesRead bool
	pressures  []messages.Pressure
	shutdown   bool // the machine is shutting down
	inUse      []v1.UniqueVolumeName
	inUseKnown bool // otherwise the Node's volumesInUse stays
	drivers    messages.CSIDriversObserved
}

// compose returns the Node with its present status, and does not change was. Fields of others stay: volumes, resources added by
// an operator, conditions of other writers, fields of newer versions of Kubernetes.
func compose(w NodeConfig, s Sizes, f facts, was *v1.Node, began, now time.Time) *v1.Node {
	node := was.DeepCopy()
	st := &node.Status
	st.Addresses = w.addresses(st.Addresses, f.addresses)
	info := &st.NodeInfo
	m := f.machine
	dropOthers(st, m, s)
	setSizes(st, s, m)
	info.MachineID, info.SystemUUID, info.BootID = cmp.Or(m.MachineID, info.MachineID), cmp.Or(m.SystemUUID, info.SystemUUID),
		cmp.Or(m.BootID, info.BootID)
	info.KernelVersion, info.OSImage = cmp.Or(m.Kernel, info.KernelVersion), cmp.Or(m.OSImage, info.OSImage)
	info.OperatingSystem, info.Architecture = runtime.GOOS, runtime.GOARCH
	info.KubeletVersion = w.KubeletVersion
	info.KubeProxyVersion = "" //nolint:staticcheck // deprecated, and emptied by kubelets since 1.33
	info.Swap = nil
	if m.Swap > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &m.Swap}
	}
	if f.runtime.Name != "" {
		info.ContainerRuntimeVersion = f.runtime.Name + "://" + plainVersion(f.runtime.Version)
		st.RuntimeHandlers, st.Features = f.runtime.Handlers, f.runtime.Features
	} else if info.ContainerRuntimeVersion == "" {
		info.ContainerRuntimeVersion = "Unknown"
	}
	st.DaemonEndpoints = v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: w.KubeletPort}}
	st.DeclaredFeatures = w.Features
	if f.imagesRead {
		st.Images = f.images
	}
	if f.inUseKnown {
		st.VolumesInUse = f.inUse
	}
	ready := condition(was, v1.NodeReady)
	setPressures(node, f.pressures, now)
	setReady(node, f.unready(ready != nil && ready.Status == v1.ConditionTrue, began, now), now)
	return node
}

// dropOthers removes the extended resources of another machine that had the Node's name before, and those of device plugins whose
// record is lost. The rules are the kubelet's.
func dropOthers(st *v1.NodeStatus, m Machine, s Sizes) {
	another := func(was, is string) bool { return was != "" && is != "" && was != is }
	if !another(st.NodeInfo.MachineID, m.MachineID) && !another(st.NodeInfo.SystemUUID, m.SystemUUID) &&
		(s.Forgotten == nil || !s.Forgotten()) {
		return
	}
	for name := range st.Capacity {
		if admission.Extended(name) {
			st.Capacity[name] = resource.Quantity{}
		}
	}
}

// setSizes sets capacity and allocatable of the agent's own resources. An operator's extended resources stay, and are allocatable
// as a whole. Resources of a device plugin that is gone stay listed with 0: a missing one would count as the cluster's. Both
// rules are the kubelet's.
func setSizes(st *v1.NodeStatus, s Sizes, m Machine) {
	if m.CPUs == 0 || m.Memory == 0 {
		return // the reading failed, which unready reports
	}
	own := s.Capacity(m)
	if st.Capacity == nil {
		st.Capacity = v1.ResourceList{}
	}
	for name := range st.Capacity {
		if !has(own, name) && isHugePages(name) {
			delete(st.Capacity, name)
		}
	}
	var devices, usable v1.ResourceList
	if s.Devices != nil {
		devices, usable = s.Devices()
	}
	maps.Copy(st.Capacity, devices)
	for name, q := range own {
		st.Capacity[name] = q
	}
	if st.Allocatable == nil {
		st.Allocatable = v1.ResourceList{}
	}
	for name := range st.Allocatable {
		if !has(st.Capacity, name) && (isHugePages(name) || admission.Extended(name)) {
			delete(st.Allocatable, name)
		}
	}
	maps.Copy(st.Allocatable, s.Allocatable(st.Capacity))
	maps.Copy(st.Allocatable, usable)
}

func has(list v1.ResourceList, name v1.ResourceName) bool {
	_, ok := list[name]
	return ok
}

// plainVersion returns a runtime's version without a leading v and without a distribution's suffix, as the kubelet reports it.
func plainVersion(text string) string {
	if v, err := version.ParseSemantic(text); err == nil {
		return v.String()
	}
	if v, err := version.ParseGeneric(text); err == nil {
		return v.String()
	}
	return cmp.Or(text, "Unknown")
}

// maxNames is the kubelet's bound on the reported names of an image.
const maxNames = 5

// imagesOf returns the reported images, largest first, with their digests and tags; limit -1 for all.
func imagesOf(all []*runtimeapi.Image, limit int32) []v1.ContainerImage {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(a.GetId(), b.GetId()))
	})
	if limit >= 0 && int(limit) < len(all) {
		all = all[:limit]
	}
	var out []v1.ContainerImage
	for _, i := range all {
		names := slices.Concat(i.GetRepoDigests(), i.GetRepoTags())
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), maxNames)],
			SizeBytes: int64(i.GetSize())}) //nolint:gosec // an image's size
	}
	return out
}

// differs reports whether the status changed in more than its heartbeats.
func differs(a, b *v1.Node) bool {
	return !equality.Semantic.DeepEqual(withoutHeartbeats(a), withoutHeartbeats(b))
}

// withoutHeartbeats returns the status without heartbeats, as it is sent.
func withoutHeartbeats(node *v1.Node) *v1.NodeStatus {
	st := node.Status.DeepCopy()
	for i := range st.Conditions {
		st.Conditions[i].LastHeartbeatTime = metav1.Time{}
		// as it is sent
		st.Conditions[i].LastTransitionTime = metav1.NewTime(st.Conditions[i].LastTransitionTime.Truncate(time.Second))
	}
	slices.SortFunc(st.Conditions, func(x, y v1.NodeCondition) int { return cmp.Compare(x.Type, y.Type) })
	return st
}
