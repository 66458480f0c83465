package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/playlet-dev/playlet/actors/internal/devices/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/cri/translate"
)

// ContainerEdits is the part of a container's configuration that its devices add.
type ContainerEdits struct {
	Env         []translate.EnvVar
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	CDIDevices  []*runtimeapi.CDIDevice
	Annotations map[string]string
}

// preStartTimeout is how long a plugin may take before each start of a container; the API's.
const preStartTimeout = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second

// Prepare returns the configuration for each creation of a container. It calls PreStartContainer on plugins that request it.
// After the loss of a checkpoint, it allocates the missing devices.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod, c *v1.Container) (ContainerEdits, error) {
	names, counts := m.asks(c.Resources.Limits)
	if len(names) == 0 {
		return ContainerEdits{}, nil
	}
	h := holder{string(pod.UID), c.Name}
	allocated := false
	for _, name := range names {
		if m.has(h, name).answer == nil {
			if err := m.allocate(ctx, request{h, name, counts[name], m.reuse(pod, c)[name], topology.Result{}}); err != nil {
				return ContainerEdits{}, err
			}
			allocated = true
		}
		if err := m.preStart(ctx, name, m.has(h, name).ids()); err != nil {
			return ContainerEdits{}, err
		}
	}
	var out ContainerEdits
	m.locked(func() {
		out = m.inventory.options(h, names)
		if allocated {
			m.put()
		}
	})
	if allocated {
		if err := m.file.Flush(); err != nil {
			return ContainerEdits{}, err
		}
	}
	return out, nil
}

// reuse returns the earlier containers' devices that a container may reuse.
func (m *Manager) reuse(pod *v1.Pod, c *v1.Container) map[string][]string {
	for one, reuse := range m.containers(pod) {
		if one.Name == c.Name {
			return reuse
		}
	}
	return nil // an ephemeral one
}

func (m *Manager) has(h holder, name string) allocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inventory.given[h][name]
}

// preStart calls a plugin's PreStartContainer. A plugin that has not registered since the agent started is not called,
// because its options are unknown.
func (m *Manager) preStart(ctx context.Context, name string, ids []string) error {
	var p *plugin
	m.locked(func() {
		if k := m.inventory.resources[name]; k != nil {
			p = k.plugin
		}
	})
	if p == nil || !p.options.GetPreStartRequired() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, preStartTimeout)
	defer cancel()
	if _, err := p.api.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}

// options merges the plugins' answers. For conflicting entries the first resource, in order of names, takes precedence.
func (b *inventory) options(h holder, names []string) ContainerEdits {
	out := ContainerEdits{Annotations: map[string]string{}}
	seen := map[[2]string]bool{}
	first := func(kind, key string) bool {
		k := [2]string{kind, key}
		was := seen[k]
		seen[k] = true
		return !was
	}
	for _, name := range names {
		answer := b.given[h][name].answer
		for _, key := range slices.Sorted(maps.Keys(answer.GetEnvs())) {
			if first("env", key) {
				out.Env = append(out.Env, translate.EnvVar{Name: key, Value: answer.GetEnvs()[key]})
			}
		}
		for _, d := range answer.GetDevices() {
			if first("device", d.GetContainerPath()) {
				out.Devices = append(out.Devices, &runtimeapi.Device{HostPath: d.GetHostPath(),
					ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions()})
			}
		}
		for _, mount := range answer.GetMounts() {
			if first("mount", mount.GetContainerPath()) {
				out.Mounts = append(out.Mounts, &runtimeapi.Mount{HostPath: mount.GetHostPath(),
					ContainerPath: mount.GetContainerPath(), Readonly: mount.GetReadOnly()})
			}
		}
		for key, value := range answer.GetAnnotations() {
			if first("annotation", key) {
				out.Annotations[key] = value
			}
		}
		for _, d := range answer.GetCdiDevices() {
			if first("cdi", d.GetName()) {
				out.CDIDevices = append(out.CDIDevices, &runtimeapi.CDIDevice{Name: d.GetName()})
			}
		}
	}
	return out
}

// Capacity returns the Node's capacity and allocatable amounts of plugins' resources. It does not block.
func (m *Manager) Capacity() (capacity, allocatable v1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inventory.capacity(time.Now())
}

// Health is how the devices of a container are, by resource; none where it has none (KEP-4680). It does not wait.
func (m *Manager) Health(uid, container string) (out []v1.ResourceStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	has := m.inventory.given[holder{uid, container}]
	for _, name := range slices.Sorted(maps.Keys(has)) {
		s := v1.ResourceStatus{Name: v1.ResourceName(name)}
		for _, id := range has[name].ids() {
			health := v1.ResourceHealthStatusHealthy // also for an unlisted device, as with the kubelet
			if k := m.inventory.resources[name]; k != nil {
				if d, listed := k.devices[id]; listed && !d.healthy {
					health = v1.ResourceHealthStatusUnhealthy
				}
			}
			s.Resources = append(s.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: health})
		}
		out = append(out, s)
	}
	return out
}

// Of are the devices of a container as the pod resources API has them: an entry for each device and each NUMA node of it. It does
// not wait.
func (m *Manager) Of(uid, container string) (out []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	has := m.inventory.given[holder{uid, container}]
	for _, name := range slices.Sorted(maps.Keys(has)) {
		for _, node := range slices.Sorted(maps.Keys(has[name].devices)) {
			for _, id := range has[name].devices[node] {
				out = append(out, entry(name, id, node))
			}
		}
	}
	return out
}

// Allocatable are all healthy devices, whoever has them, as the pod resources API has them. It does not wait.
func (m *Manager) Allocatable() (out []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.inventory.resources)) {
		k := m.inventory.resources[name]
		for _, id := range k.healthy() {
			nodes := k.devices[id].nodes
			if len(nodes) == 0 {
				nodes = []int64{checkpoint.NoNode}
			}
			for _, node := range nodes {
				out = append(out, entry(name, id, node))
			}
		}
	}
	return out
}

func entry(name, id string, node int64) *podresources.ContainerDevices {
	e := &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id}}
	if node != checkpoint.NoNode {
		e.Topology = &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: node}}}
	}
	return e
}
