package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	cadvisor "github.com/google/cadvisor/lib/model"
)

// The policies [topologyManagerPolicy].
const (
	PolicyNone       = "none"
	PolicyBestEffort = "best-effort"
	PolicyRestricted = "restricted"
	PolicySingleNode = "single-numa-node"
)

// The scopes [topologyManagerScope].
const (
	ScopeContainer = "container"
	ScopePod       = "pod"
)

// The reason and the message of a pod that a policy refuses; the kubelet's.
const (
	ReasonAffinity  = "TopologyAffinityError"
	MessageAffinity = "Resources cannot be allocated with Topology locality"
)

// defaultMaxNodes is the largest number of NUMA nodes without the option max-allowable-numa-nodes; the kubelet's.
const defaultMaxNodes = 8

// Options are the options of the policies.
type Options struct {
	Closest  bool // prefer-closest-numa-nodes
	MaxNodes int  // max-allowable-numa-nodes
}

// ParseOptions reads topologyManagerPolicyOptions.
func ParseOptions(values map[string]string) (Options, error) {
	out := Options{MaxNodes: defaultMaxNodes}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var err error
		switch name {
		case "prefer-closest-numa-nodes":
			if out.Closest, err = strconv.ParseBool(values[name]); err != nil {
				return Options{}, fmt.Errorf("bad value for option %q: %w", name, err)
			}
		case "max-allowable-numa-nodes":
			if out.MaxNodes, err = strconv.Atoi(values[name]); err != nil {
				return Options{}, fmt.Errorf("unable to convert policy option to integer %q: %w", name, err)
			}
			if out.MaxNodes < defaultMaxNodes {
				return Options{}, fmt.Errorf("the minimum value of %q should not be less than %d", name, defaultMaxNodes)
			}
		default:
			return Options{}, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
	}
	return out, nil
}

// Machine is the NUMA nodes of the machine. It is immutable.
type Machine struct {
	Nodes Mask
	// Distances are the distances from a node to nodes 0, 1, …, as the kernel reports them. Only the option
	// prefer-closest-numa-nodes uses them.
	Distances map[int][]uint64
}

// Policy decides about the hints of all requests. It is immutable.
type Policy struct {
	name    string
	machine Machine
	options Options
}

// New returns the policy of the configuration on a machine. Only policies other than none read the machine.
func New(name string, options map[string]string, nodes func() ([]cadvisor.Node, error)) (Policy, error) {
	if name == PolicyNone { // its options are ignored, as by the kubelet
		return Policy{name: name}, nil
	}
	o, err := ParseOptions(options)
	if err != nil {
		return Policy{}, fmt.Errorf("topologyManagerPolicyOptions: %w", err)
	}
	m := Machine{Distances: map[int][]uint64{}}
	all, err := nodes()
	if err != nil {
		return Policy{}, fmt.Errorf("topologyManagerPolicy %s: %w", name, err)
	}
	for _, n := range all {
		m.Nodes |= MaskOf(n.Id)
		m.Distances[n.Id] = n.Distances
	}
	p, err := NewPolicy(name, m, o)
	if err != nil {
		return Policy{}, fmt.Errorf("topologyManagerPolicy %s: %w", name, err)
	}
	return p, nil
}

// NewPolicy returns a policy. It is an error if the policy is unknown, if the machine has more nodes than the options permit, or
// if it lacks the distances that they require.
func NewPolicy(name string, m Machine, o Options) (Policy, error) {
	if name == PolicyNone {
		return Policy{name: name}, nil
	}
	if !slices.Contains([]string{PolicyBestEffort, PolicyRestricted, PolicySingleNode}, name) {
		return Policy{}, fmt.Errorf("unknown policy: %q", name)
	}
	if m.Nodes.Len() > o.MaxNodes {
		return Policy{}, fmt.Errorf("unsupported on machines with more than %d NUMA Nodes", o.MaxNodes)
	}
	for n := range m.Nodes.Nodes() {
		if o.Closest && len(m.Distances[n]) == 0 {
			return Policy{}, fmt.Errorf("the distances of NUMA node %d are not known", n)
		}
	}
	return Policy{name, m, o}, nil
}

// Nodes returns the NUMA nodes of the machine; empty with the policy none, which does not read them.
func (p Policy) Nodes() Mask { return p.machine.Nodes }

// Active reports whether the policy is another than none.
func (p Policy) Active() bool { return p.name != "" && p.name != PolicyNone }

// Aligns reports whether the policy guarantees that all resources of an admitted container come from one node.
func (p Policy) Aligns() bool { return p.name == PolicySingleNode }

// Admit merges the hints of all requests. The error is a Refusal.
func (p Policy) Admit(requests []Request) (Result, error) {
	var out Result
	switch p.name {
	case "", PolicyNone:
		return Result{}, nil
	case PolicySingleNode:
		single := make([]Request, 0, len(requests))
		for _, r := range requests {
			single = append(single, Request{r.Resource, r.single()})
		}
		if out = p.machine.merge(single, false); out.Nodes == p.machine.Nodes {
			out.Nodes = 0
		}
	default:
		out = p.machine.merge(possible(requests), p.options.Closest)
	}
	if p.name != PolicyBestEffort && !out.Preferred {
		return out, p.refuse(requests)
	}
	return out, nil
}

// single returns the preferred hints of one node.
func (r Request) single() (out []Hint) {
	for _, h := range r.Hints {
		if h.Preferred && h.Nodes.Len() <= 1 {
			out = append(out, h)
		}
	}
	return out
}

// possible returns the requests with a hint each: one without may have any nodes, and no result is preferred.
func possible(requests []Request) []Request {
	out := slices.Clone(requests)
	for i, r := range out {
		if len(r.Hints) == 0 {
			out[i].Hints = []Hint{{}}
		}
	}
	return out
}

// Refusal is the error of a pod with resources that are not on suitable NUMA nodes. Error returns the kubelet's message.
type Refusal struct {
	// Resource is the first resource that no suitable nodes have; empty if each has some, but not the same.
	Resource string
	// Detail is the explanation: the resources with the nodes considered for them.
	Detail string
}

func (r Refusal) Error() string { return MessageAffinity }

func (p Policy) refuse(requests []Request) Refusal {
	var out Refusal
	var all []string
	for _, r := range requests {
		hints := r.single()
		if !p.Aligns() {
			hints = slices.DeleteFunc(slices.Clone(r.Hints), func(h Hint) bool { return !h.Preferred })
		}
		var sets []string
		for _, h := range hints {
			sets = append(sets, h.Nodes.String())
		}
		if len(sets) == 0 {
			out.Resource = r.Resource
			out.Detail = fmt.Sprintf("policy %s: %s fits on no preferred set of the NUMA nodes %s", p.name, r.Resource,
				p.machine.Nodes)
			return out
		}
		all = append(all, r.Resource+" fits on "+strings.Join(sets, " or "))
	}
	out.Detail = fmt.Sprintf("policy %s: no NUMA nodes suit all resources: %s", p.name, strings.Join(all, "; "))
	return out
}

// ChangedError is the error of an allocation that a preferred hint had promised: another pod has got the resources since. The
// allocation of the pod is to be repeated from the beginning.
type ChangedError struct{ Err error }

func (e ChangedError) Error() string { return e.Err.Error() }

func (e ChangedError) Unwrap() error { return e.Err }
