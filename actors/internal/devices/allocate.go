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
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/topology"
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

// Fit releases the devices of a static pod's containers that request another number of them.
func (m *Manager) Fit(pod *v1.Pod) {
	if translate.IsStatic(pod) {
		m.locked(func() { m.inventory.fit(pod) })
	}
}

// Allocate allocates the devices that a container of a pod requests, through their plugins. Earlier allocations stay. Calls for
// one pod must not run concurrently. After an error the caller releases the pod's devices.
func (m *Manager) Allocate(ctx context.Context, pod *v1.Pod, c *v1.Container, hint topology.Result) error {
	names, counts := m.asks(c.Resources.Limits)
	if len(names) == 0 {
		return nil
	}
	reuse := m.reuse(pod, c)
	for _, name := range names {
		if err := m.allocate(ctx, request{holder{string(pod.UID), c.Name}, name, counts[name], reuse[name], hint}); err != nil {
			return err
		}
	}
	return nil
}

// Commit writes the allocations to the disk.
func (m *Manager) Commit() error {
	m.locked(m.put)
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
		has := sets.New(ids...)
		reuse[name] = slices.DeleteFunc(reuse[name], has.Has)
		if may {
			reuse[name] = append(reuse[name], ids...)
			slices.Sort(reuse[name])
		}
	}
}

// asks are the plugins' resources in a container's or pod's limits, in order, with how many of each. Requests are the same as
// limits.
func (m *Manager) asks(limits v1.ResourceList) (names []string, counts map[string]int) {
	counts = map[string]int{}
	for name, q := range limits {
		if q.Value() > 0 && m.IsDevice(name) {
			counts[string(name)] = int(q.Value())
		}
	}
	return slices.Sorted(maps.Keys(counts)), counts
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
		return fmt.Errorf("device plugin of %s: %w", r.resource, err)
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
