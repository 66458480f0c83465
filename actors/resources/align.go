package resources

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/topology"
)

// Provider has one kind of resources that containers can have to themselves: *devices.Manager, *cpus.Manager,
// *numamemory.Manager.
type Provider interface {
	// Retain releases the resources of all pods but the holders, which are named by UID. It does not block.
	Retain(holders map[string]string)
	// Fit releases the resources that a pod has for other requests than its present ones. It does not block.
	Fit(pod *v1.Pod)
	// Hints returns the NUMA nodes that can satisfy a container, or the whole pod if it is nil: a request for each resource
	// that has a preference. It does not block.
	Hints(pod *v1.Pod, c *v1.Container) []topology.Request
	// Allocate allocates a container's resources, or keeps the ones that it has. It prefers the nodes of the hint. It blocks on
	// plugins. A topology.ChangedError means that the nodes of a preferred hint no longer have them.
	Allocate(ctx context.Context, pod *v1.Pod, c *v1.Container, hint topology.Result) error
	// Commit writes the allocations to the disk, and blocks on it.
	Commit() error
	// Release releases the resources of one pod. It does not block.
	Release(uid string)
}

// Alignment is the topology manager's policy, and the scope in which it is applied. The zero value has no policy.
type Alignment struct {
	Policy topology.Policy // [topologyManagerPolicy]
	Scope  string          // [topologyManagerScope]
}

// maxTries bounds the allocations for one admission.
const maxTries = 10

// admit allocates everything that a pod asks for, or nothing. Pods are allocated concurrently, because a device plugin may hang:
// no lock is held between the hints and the allocation. If another pod got the resources meanwhile, everything is repeated, a few
// times at most.
func (a allocation) admit(ctx context.Context, pod *v1.Pod) (err error) {
	metrics.AlignmentRequests.WithLabelValues().Inc()
	defer metrics.AlignedSince(time.Now())
	for tries, changed := 0, true; changed && tries < maxTries; tries++ {
		if err = a.try(ctx, pod); err == nil {
			a.count(pod)
			return nil
		}
		for _, p := range a.providers {
			p.Release(string(pod.UID))
		}
		_, changed = errors.AsType[topology.ChangedError](err)
		changed = changed && ctx.Err() == nil
	}
	if a.alignment.Policy.Active() {
		metrics.AlignmentErrors.WithLabelValues().Inc()
	}
	return err
}

// try allocates container by container, init containers first, as the kubelet does.
func (a allocation) try(ctx context.Context, pod *v1.Pod) error {
	for _, p := range a.providers {
		p.Fit(pod)
	}
	policy, whole := a.alignment.Policy, a.alignment.Scope == topology.ScopePod
	var hint topology.Result
	var err error
	if policy.Active() && whole {
		if hint, err = a.hint(pod, nil); err != nil {
			return err
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if policy.Active() && !whole {
			if hint, err = a.hint(pod, &c); err != nil {
				return err
			}
		}
		for _, p := range a.providers {
			if err := p.Allocate(ctx, pod, &c, hint); err != nil {
				return err
			}
		}
	}
	for _, p := range a.providers {
		if err := p.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// hint merges the hints of all providers for a container, or for the whole pod if it is nil.
func (a allocation) hint(pod *v1.Pod, c *v1.Container) (topology.Result, error) {
	var requests []topology.Request
	for _, p := range a.providers {
		requests = append(requests, p.Hints(pod, c)...)
	}
	hint, err := a.alignment.Policy.Admit(requests)
	if refusal, refused := errors.AsType[topology.Refusal](err); refused {
		scope := metrics.ByPod
		if c != nil {
			scope, refusal.Detail = metrics.ByContainer, "container "+c.Name+": "+refusal.Detail
		}
		if a.alignment.Policy.Aligns() {
			metrics.Unaligned.WithLabelValues(scope, metrics.NUMANode).Inc()
		}
		return hint, refusal
	}
	return hint, err
}

// count counts a pod that the policy guarantees to be aligned.
func (a allocation) count(pod *v1.Pod) {
	switch {
	case !a.alignment.Policy.Aligns():
	case a.alignment.Scope == topology.ScopePod:
		metrics.Aligned.WithLabelValues(metrics.ByPod, metrics.NUMANode).Inc()
	default:
		n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
		metrics.Aligned.WithLabelValues(metrics.ByContainer, metrics.NUMANode).Add(float64(n))
	}
}
