package admission

import (
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Claim is a pod, and what it asks of the node, counted once. Immutable.
type Claim struct {
	Pod      *v1.Pod
	requests map[v1.ResourceName]int64
	ports    []hostPort
}

// NewClaim counts what a pod asks for: all containers and sidecars, or an init container beside the sidecars before it where
// that is more; what the pod asks for as a whole instead, where it does; and its overhead.
func NewClaim(pod *v1.Pod) *Claim {
	c := &Claim{Pod: pod, requests: map[v1.ResourceName]int64{}, ports: hostPorts(pod)}
	for name, q := range translate.PodRequests(pod) {
		c.requests[name] = amount(name, q)
	}
	return c
}

// Ledger is what the pods that are on the node hold of it, whether they run or end.
type Ledger struct {
	count int64
	used  map[v1.ResourceName]int64
	ports map[port][]heldPort
}

// NewLedger is one with these pods.
func NewLedger(claims ...*Claim) *Ledger {
	l := &Ledger{used: map[v1.ResourceName]int64{}, ports: map[port][]heldPort{}}
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
		l.ports[p.port] = append(l.ports[p.port], heldPort{p.ip, c.Pod})
	}
}
