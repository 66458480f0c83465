package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Claim is a pod with its requests on the node, computed once. Immutable.
type Claim struct {
	Pod      *v1.Pod
	requests map[v1.ResourceName]int64
	ports    []hostPort
}

// NewClaim computes the requests of a pod. They are the sum over all containers and sidecars, or over an init container
// with its earlier sidecars, whichever is more. Pod-level requests replace them. The overhead is added. Extended resources of a
// ResourceClaim are not counted: the claim has them.
func NewClaim(pod *v1.Pod) *Claim {
	c := &Claim{Pod: pod, requests: map[v1.ResourceName]int64{}, ports: hostPorts(pod)}
	for name, q := range translate.PodRequests(Unclaimed(pod)) {
		c.requests[name] = amount(name, q)
	}
	return c
}

// Unclaimed returns the pod without the extended resources that its containers have from a ResourceClaim (KEP-5004). It returns
// the pod itself if there are none, and does not change it.
func Unclaimed(pod *v1.Pod) *v1.Pod {
	s := pod.Status.ExtendedResourceClaimStatus
	if s == nil || len(s.RequestMappings) == 0 {
		return pod
	}
	pod = pod.DeepCopy()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, r := range s.RequestMappings {
				if r.ContainerName == list[i].Name {
					delete(list[i].Resources.Requests, v1.ResourceName(r.ResourceName))
					delete(list[i].Resources.Limits, v1.ResourceName(r.ResourceName))
				}
			}
		}
	}
	return pod
}

// Ledger sums the resources held by the pods on the node, including pods that are ending.
type Ledger struct {
	count int64
	used  map[v1.ResourceName]int64
	ports map[port][]hostPort
}

// NewLedger is one with these pods.
func NewLedger(claims ...*Claim) *Ledger {
	l := &Ledger{used: map[v1.ResourceName]int64{}, ports: map[port][]hostPort{}}
	for _, c := range claims {
		l.Add(c)
	}
	return l
}

// Add enters one more pod.
func (l *Ledger) Add(c *Claim) {
	l.count++
	for name, n := range c.requests {
		l.used[name] += n
	}
	for _, p := range c.ports {
		l.ports[p.at] = append(l.ports[p.at], p)
	}
}

// shortage is one resource that does not suffice.
type shortage struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

func (s shortage) refusal() Refusal {
	numbers := fmt.Sprintf("requested: %d, used: %d, capacity: %d", s.requested, s.used, s.capacity)
	return Refusal{Reason: ReasonOutOf + string(s.name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, %s", s.name, numbers),
		Cause:   messages.Cause{Code: messages.CauseShortage, Name: string(s.name), Detail: numbers}}
}

// shortages are the resources that do not suffice for the pod beside the others, in the order of their report.
func shortages(node *Node, others *Ledger, claim *Claim) []shortage {
	var out []shortage
	if limit, ok := node.Allocatable[v1.ResourcePods]; ok && others.count+1 > limit.Value() {
		out = append(out, shortage{v1.ResourcePods, 1, others.count, limit.Value()})
	}
	if node.UnboundRequests {
		return out
	}
	for _, name := range claim.inOrder() {
		limit, known := node.Allocatable[name]
		if !known && (node.Partial || Extended(name)) {
			continue // an extended one is the cluster's, not a node's
		}
		s := shortage{name, claim.requests[name], others.used[name], amount(name, limit)}
		if s.requested > 0 && s.requested > s.capacity-s.used {
			out = append(out, s)
		}
	}
	return out
}

// Exceeds lists the requests that exceed the capacity of the whole node, even if UnboundRequests is set. It is empty if there
// are none.
func Exceeds(node *Node, claim *Claim) string {
	bound, asks := *node, translate.PodRequests(claim.Pod)
	bound.UnboundRequests = false
	var out []string
	for _, s := range shortages(&bound, NewLedger(), claim) {
		if asked, has := asks[s.name], node.Allocatable[s.name]; s.name != v1.ResourcePods {
			out = append(out, fmt.Sprintf("%s %s of %s", s.name, &asked, &has))
		}
	}
	return strings.Join(out, ", ")
}

// inOrder are cpu, memory, ephemeral storage, and then the others by name.
func (c *Claim) inOrder() []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	var rest []v1.ResourceName
	for name := range c.requests {
		if !slices.Contains(first, name) && name != v1.ResourcePods {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(first, rest...)
}

// amount is a quantity in the unit that it is compared in.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// Extended reports whether a resource is an extended resource, as opposed to one of Kubernetes or of the machine.
func Extended(name v1.ResourceName) bool {
	text := string(name)
	return strings.Contains(text, "/") && !strings.Contains(text, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(text, v1.DefaultResourceRequestsPrefix)
}

// allAddresses is the address of a host port without hostIP.
const allAddresses = "0.0.0.0"

// conflict looks for a host port that another pod has: two conflict where their addresses are the same or one has all.
func (l *Ledger) conflict(claim *Claim) Refusal {
	for _, p := range claim.ports {
		for _, held := range l.ports[p.at] {
			if p.ip == held.ip || p.ip == allAddresses || held.ip == allAddresses {
				return predicate(ReasonNodePorts, fmt.Sprintf("host port %d/%s at %s is used by pod %s/%s",
					p.at.number, p.at.protocol, p.ip, held.pod.Namespace, held.pod.Name))
			}
		}
	}
	return Refusal{}
}

type port struct {
	protocol v1.Protocol
	number   int32
}

// hostPort is a port at an address, with the pod that has it.
type hostPort struct {
	at  port
	ip  string
	pod *v1.Pod
}

// hostPorts are the ports of the node that the pod has for as long as it runs: init containers' are not.
func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				at := port{cmp.Or(p.Protocol, v1.ProtocolTCP), p.HostPort}
				out = append(out, hostPort{at, cmp.Or(p.HostIP, allAddresses), pod})
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
