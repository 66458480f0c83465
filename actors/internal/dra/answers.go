package dra

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/playlet-dev/playlet/messages"
)

// Devices returns the CDI devices of a container, in a stable order, each once. If the checkpoint was lost, and a claim
// is not recorded as used by the pod, the pod's claims are prepared first.
func (m *Manager) Devices(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]*runtimeapi.CDIDevice, error) {
	uses, err := usesOf(pod, c, m.extended)
	if err != nil || len(uses) == 0 {
		return nil, err
	}
	out, lacks := m.devices(pod, uses)
	if lacks == nil {
		return out, nil
	}
	if err := m.Prepare(ctx, pod); err != nil {
		return nil, err
	}
	if out, lacks = m.devices(pod, uses); lacks != nil {
		return nil, messages.Cause{Code: messages.CauseClaimUnready, Kind: claimKind, Name: lacks.String()}.Errorf(
			"ResourceClaim %s is not prepared", lacks)
	}
	return out, nil
}

// devices returns the CDI devices of a pod's claims, or a claim that is not recorded as used by the pod.
func (m *Manager) devices(pod *v1.Pod, uses []use) (out []*runtimeapi.CDIDevice, lacks *key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range uses {
		c := m.table[u.key]
		if c == nil || !c.PodUIDs.Has(string(pod.UID)) {
			return nil, &u.key
		}
		for _, request := range u.requests {
			for _, d := range c.devices(request) {
				for _, name := range d.CDIDeviceIDs {
					if !slices.ContainsFunc(out, func(o *runtimeapi.CDIDevice) bool { return o.GetName() == name }) {
						out = append(out, &runtimeapi.CDIDevice{Name: name})
					}
				}
			}
		}
	}
	return out, nil
}

// Health returns the health of a container's devices, by claim and request (KEP-4680); none if the feature is disabled. It does
// not block.
func (m *Manager) Health(pod *v1.Pod, c *v1.Container) (out []v1.ResourceStatus) {
	if m.health == nil || len(c.Resources.Claims) == 0 {
		return nil
	}
	uses, err := usesOf(pod, c, false)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range uses {
		known := m.table[u.key]
		if known == nil {
			continue
		}
		for _, request := range u.requests {
			s := v1.ResourceStatus{Name: v1.ResourceName("claim:" + u.claim)}
			if request != "" {
				s.Name += v1.ResourceName("/" + request)
			}
			if s.Resources = m.healthOf(known.devices(request)); len(s.Resources) > 0 {
				out = append(out, s)
			}
		}
	}
	return out
}

// healthOf returns the health of devices, once for each ID. The caller holds mu.
func (m *Manager) healthOf(devices []device) (out []v1.ResourceHealth) {
	now := time.Now()
	for _, d := range devices {
		h := v1.ResourceHealth{ResourceID: v1.ResourceID(d.driver + "/" + d.PoolName + "/" + d.DeviceName)}
		if len(d.CDIDeviceIDs) > 0 {
			h.ResourceID = v1.ResourceID(d.CDIDeviceIDs[0])
		}
		status, message := m.health.of(now, d.driver, deviceID{d.PoolName, d.DeviceName})
		if h.Health = status; m.messages && message != "" {
			h.Message = &message
		}
		if !slices.ContainsFunc(out, func(o v1.ResourceHealth) bool { return o.ResourceID == h.ResourceID }) {
			out = append(out, h)
		}
	}
	return out
}

// Of returns the claims of a container with all of their devices, as the pod resources API has them (KEP-3695). It does not
// block.
func (m *Manager) Of(pod *v1.Pod, c *v1.Container) (out []*podresources.DynamicResource) {
	uses, err := usesOf(pod, c, m.extended)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range uses {
		known := m.table[u.key]
		if known == nil {
			continue
		}
		r := &podresources.DynamicResource{ClaimName: u.Name, ClaimNamespace: u.Namespace}
		for _, d := range known.devices("") {
			one := &podresources.ClaimResource{DriverName: d.driver, PoolName: d.PoolName, DeviceName: d.DeviceName,
				ShareId: (*string)(d.ShareID)}
			for _, id := range d.CDIDeviceIDs {
				one.CdiDevices = append(one.CdiDevices, &podresources.CDIDevice{Name: id})
			}
			r.ClaimResources = append(r.ClaimResources, one)
		}
		out = append(out, r)
	}
	return out
}
