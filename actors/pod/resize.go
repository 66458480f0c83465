package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const resizeMessage = "in-place resize is not supported by this node's agent: the pod keeps the resources that its containers " +
	"were made with"

// allocate gives the pod as it is in force. The API server lets the resources of a running pod change (KEP-1287), which is not
// built yet: until then a pod of the API server keeps those that it was admitted with, in its cgroup and in each container that
// is started again. A cgroup that alone became smaller would have its containers killed.
func (m *Machine) allocate(desired *v1.Pod) *v1.Pod {
	m.resized = false
	if !fromAPI(desired) {
		return desired // a manifest's container is made anew with its new resources
	}
	out := desired.DeepCopy()
	for _, list := range [][]v1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			if r := m.inForce(&list[i]); r != nil && !equality.Semantic.DeepEqual(*r, list[i].Resources) {
				list[i].Resources, m.resized = *r, true
			}
		}
	}
	if m.phase != Reading && !equality.Semantic.DeepEqual(m.pod.Spec.Resources, out.Spec.Resources) {
		out.Spec.Resources, m.resized = m.pod.Spec.Resources, true
	}
	if !m.resized {
		return desired
	}
	return out
}

// inForce are the resources that a container of the pod has: those that this machine knows already, or those that the container
// was made with, or those that a kubelet reported; nil where there are none.
func (m *Machine) inForce(desired *v1.Container) *v1.ResourceRequirements {
	if m.phase != Reading {
		for _, c := range m.containers {
			if c.spec != nil && c.name == desired.Name {
				return &c.spec.Resources
			}
		}
		return nil
	}
	if c := m.container(desired.Name); c != nil && c.newest() != nil {
		if was := m.set.Resources(*c.newest()); was != nil {
			return was
		}
	}
	if m.desired.Last == nil {
		return nil
	}
	return reportedResources(desired, lastOf(m.desired.Last, desired.Name))
}

// reportedResources are those of a kubelet's container by its status; nil where they are the desired ones. A limit of CPU in a
// status is rounded as the kernel has it, so that it alone tells no resize.
func reportedResources(desired *v1.Container, s *v1.ContainerStatus) *v1.ResourceRequirements {
	if s == nil || s.Resources == nil || s.AllocatedResources == nil {
		return nil
	}
	memory := s.Resources.Limits.Memory()
	if equality.Semantic.DeepEqual(s.AllocatedResources, desired.Resources.Requests) &&
		memory.Cmp(*desired.Resources.Limits.Memory()) == 0 {
		return nil
	}
	return &v1.ResourceRequirements{Limits: s.Resources.Limits, Requests: s.AllocatedResources, Claims: desired.Resources.Claims}
}
