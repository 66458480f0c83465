package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/translate"
)

// shortage is one resource that does not suffice.
type shortage struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

func (s shortage) refusal() Refusal {
	return Refusal{Reason: ReasonOutOf + string(s.name), Message: fmt.Sprintf(
		"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", s.name, s.requested, s.used, s.capacity)}
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

// Exceeds says of what the pod asks for more than the whole node has, whether that is held against it or not; empty: nothing.
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

// Extended says that a resource is neither Kubernetes' own nor a node's as such.
func Extended(name v1.ResourceName) bool {
	text := string(name)
	return strings.Contains(text, "/") && !strings.Contains(text, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(text, v1.DefaultResourceRequestsPrefix)
}
