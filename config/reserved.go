package config

import (
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

// reserveCPUs has the CPUs that are reserved one by one (reservedSystemCPUs) stand for all cpu that systemReserved and
// kubeReserved keep from pods, as with the kubelet. What keeps pods off these very CPUs is a policy of the CPU manager. To be
// called when all is validated.
func (n *Node) reserveCPUs() []Warning {
	const cpu = string(corev1.ResourceCPU)
	c := n.Kubelet
	set, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil || set.IsEmpty() {
		return nil
	}
	_, system := c.SystemReserved[cpu]
	_, kube := c.KubeReserved[cpu]
	c.SystemReserved, c.KubeReserved = maps.Clone(c.SystemReserved), maps.Clone(c.KubeReserved)
	if c.SystemReserved == nil {
		c.SystemReserved = map[string]string{}
	}
	c.SystemReserved[cpu] = strconv.Itoa(set.Size())
	delete(c.KubeReserved, cpu)
	if !system && !kube {
		return nil
	}
	return []Warning{{Flag: "--reserved-cpus", Message: fmt.Sprintf(
		"%s takes the place of the cpu in systemReserved and kubeReserved", c.ReservedSystemCPUs)}}
}
