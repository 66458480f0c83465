package devices

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri/translate"
)

// IsDevice reports whether the resource belongs to a plugin, or is allocated to containers. It does not block.
func (m *Manager) IsDevice(name v1.ResourceName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inventory.isDevice(string(name), time.Now())
}

// Retain takes the devices back of all pods but the holders, which are named by UID. It does not wait: the disk has it with the
// next allocation.
func (m *Manager) Retain(holders map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inventory.retain(func(uid string) bool { _, holds := holders[uid]; return holds })
}

// Release frees the devices of one pod. It does not wait for the disk.
func (m *Manager) Release(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inventory.retain(func(other string) bool { return other != uid })
	m.put()
	m.loops.Go(func() {
		if err := m.file.Flush(); err != nil {
			m.log.Warn("the checkpoint of devices cannot be written", "error", err)
		}
	})
}

// Allocate allocates the devices that the containers of a pod request, through their plugins, and records them. Earlier
// allocations stay. After an error the pod has no devices. Calls for one pod must not run concurrently.
func (m *Manager) Allocate(ctx context.Context, pod *v1.Pod) error {
	var err error
	if translate.IsStatic(pod) {
		m.locked(func() { m.inventory.fit(pod) })
	}
	for c, reuse := range m.containers(pod) {
		if err = m.allocateContainer(ctx, pod, c, reuse); err != nil {
			break
		}
	}
	m.locked(func() {
		if err != nil {
			m.inventory.retain(func(uid string) bool { return uid != string(pod.UID) })
		}
		m.put()
	})
	if err != nil {
		return err
	}
	if err := m.file.Flush(); err != nil {
		return fmt.Errorf("failed to write checkpoint file %q: %w", m.path(), err)
	}
	return nil
}

// containers yields a pod's containers in the order of allocation, each with the devices that it may reuse.
func (m *Manager) containers(pod *v1.Pod) iter.Seq2[*v1.Container, map[string][]string] {
	return func(yield func(*v1.Container, map[string][]string) bool) {
		reuse := map[string][]string{}
		for i, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for j := range list {
				c := &list[j]
				if !yield(c, reuse) {
					return
				}
				m.reusable(reuse, holder{string(pod.UID), c.Name}, i == 0 && !translate.RestartsAlways(c))
			}
		}
	}
}

// reusable adds a container's devices to those that later containers may reuse: all of an init container's, and none of
// another's.
func (m *Manager) reusable(reuse map[string][]string, h holder, may bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, g := range m.inventory.given[h] {
		ids := g.ids()
		reuse[name] = slices.DeleteFunc(reuse[name], func(id string) bool { return slices.Contains(ids, id) })
		if may {
			reuse[name] = append(reuse[name], ids...)
			slices.Sort(reuse[name])
		}
	}
}

// asks are the plugins' resources that a container asks for, in order, with how many of each. Requests are the same as limits.
func (m *Manager) asks(c *v1.Container) (names []string, counts map[string]int) {
	counts = map[string]int{}
	for name, q := range c.Resources.Limits {
		if q.Value() > 0 && m.IsDevice(name) {
			counts[string(name)] = int(q.Value())
		}
	}
	return slices.Sorted(maps.Keys(counts)), counts
}

func (m *Manager) allocateContainer(ctx context.Context, pod *v1.Pod, c *v1.Container, reuse map[string][]string) error {
	names, counts := m.asks(c)
	for _, name := range names {
		r := request{holder{string(pod.UID), c.Name}, name, counts[name], reuse[name]}
		if err := m.allocate(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// allocate gives a container devices of one resource. They are reserved while the plugin is asked, so that others may be served
// meanwhile.
func (m *Manager) allocate(ctx context.Context, r request) error {
	preferred, err := m.preferred(ctx, r)
	if err != nil {
		return err
	}
	var p *plugin
	var ids []string
	m.locked(func() {
		var n need
		var met bool
		if n, met, err = m.inventory.needs(r, time.Now()); err == nil && !met {
			ids, p = n.pick(preferred), m.inventory.resources[r.resource].plugin
			m.inventory.reserve(r, ids, nil)
		}
	})
	if p == nil { // it cannot have them, or has them
		return err
	}
	answer, err := p.allocate(ctx, ids)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.inventory.release(r.holder, r.resource)
		return err
	}
	g, still := m.inventory.given[r.holder][r.resource]
	if !still { // the pod no longer needs the answer, or further devices
		return fmt.Errorf("pod %q was removed while devices of %s were allocated to it", r.uid, r.resource)
	}
	g.answer = answer
	m.inventory.given[r.holder][r.resource] = g
	return nil
}

// preferred returns the plugin's preferred devices for a request, if the plugin has preferences.
func (m *Manager) preferred(ctx context.Context, r request) ([]string, error) {
	var n need
	var met bool
	var err error
	var p *plugin
	m.locked(func() {
		if n, met, err = m.inventory.needs(r, time.Now()); err == nil {
			p = m.inventory.resources[r.resource].plugin
		}
	})
	if err != nil || met || n.rest == 0 || !p.options.GetGetPreferredAllocationAvailable() {
		return nil, err
	}
	resp, err := p.api.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: slices.Concat(n.first, n.free), MustIncludeDeviceIDs: n.first,
			AllocationSize: int32(r.count), //nolint:gosec // a count of devices
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if all := resp.GetContainerResponses(); len(all) > 0 {
		return all[0].GetDeviceIDs(), nil
	}
	return nil, nil
}

func (p *plugin) allocate(ctx context.Context, ids []string) (*pluginapi.ContainerAllocateResponse, error) {
	defer metrics.Since(metrics.PluginAllocation, time.Now(), p.resource)
	resp, err := p.api.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	switch {
	case err != nil:
		return nil, err
	case len(resp.GetContainerResponses()) == 0:
		return nil, errors.New("no containers return in allocation response")
	}
	return resp.GetContainerResponses()[0], nil
}
