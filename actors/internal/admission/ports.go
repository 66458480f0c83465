package admission

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
)

// allAddresses is what a port without hostIP is bound to.
const allAddresses = "0.0.0.0"

// conflict looks for a host port that another pod has: two conflict where their addresses are the same or one has all.
func (l *Ledger) conflict(claim *Claim) Refusal {
	for _, p := range claim.ports {
		for _, held := range l.ports[port{p.protocol, p.number}] {
			if p.ip == held.ip || p.ip == allAddresses || held.ip == allAddresses {
				return predicate(ReasonNodePorts, fmt.Sprintf("host port %d/%s at %s is used by pod %s/%s",
					p.number, p.protocol, p.ip, held.pod.Namespace, held.pod.Name))
			}
		}
	}
	return Refusal{}
}

type port struct {
	protocol v1.Protocol
	number   int32
}

type hostPort struct {
	port
	ip string
}

// heldPort is a port at an address, and who has it.
type heldPort struct {
	ip  string
	pod *v1.Pod
}

// hostPorts are the ports of the node that the pod has for as long as it runs: init containers' are not.
func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, hostPort{port{cmp.Or(p.Protocol, v1.ProtocolTCP), p.HostPort}, cmp.Or(p.HostIP, allAddresses)})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; translate.RestartsAlways(c) {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}
