package ender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/stoporder"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// stopper stops the containers and sandboxes of a pod.
type stopper struct {
	host  *host.Host
	pod   *v1.Pod
	ips   []string // of the pod, for hooks; empty: not known
	until time.Time
}

// stopAll stops all containers of the pod in their order, with the rest of the grace period, and then its sandboxes. It first
// waits for starts in progress. A stop in progress with the same end is joined; of two, the runtime follows the shorter one.
func (s *stopper) stopAll(ctx context.Context) error {
	key := string(s.pod.UID) + "/end/" + s.host.Ops.Deadline(s.until)
	_, err := s.host.Ops.Do(ctx, key, s.rest()+workTimeout-10*time.Second, func(ctx context.Context) (any, error) {
		return nil, s.stopNow(ctx)
	})
	return host.Joined(err)
}

// rest returns the rest of the grace period, at least zero.
func (s *stopper) rest() time.Duration { return max(time.Until(s.until), 0) }

func (s *stopper) stopNow(ctx context.Context) error {
	settle, cancel := context.WithTimeout(ctx, s.host.Reap(3))
	err := s.host.Ops.Settle(settle, cri.StartPrefix(string(s.pod.UID)))
	cancel()
	if err != nil {
		return err
	}
	filter := facts.PodFilter(string(s.pod.UID))
	containers, err := s.host.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: filter})
	if err != nil {
		return err
	}
	if err := s.stopInOrder(ctx, s.running(containers)); err != nil {
		return err
	}
	sandboxes, err := s.host.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: filter})
	if err != nil {
		return err
	}
	var errs []error
	for _, sandbox := range sandboxes {
		errs = append(errs, s.host.Ops.StopSandbox(ctx, s.host.CRI, string(s.pod.UID), sandbox.GetId(), s.host.Reap(2), nil))
	}
	return errors.Join(errs...)
}

// runningContainer is a container to stop.
type runningContainer struct {
	fact     messages.ContainerFact
	spec     *v1.Container // nil: the pod's spec lacks it
	order    stoporder.Container
	position int  // in the pod's spec
	hook     bool // its pre-stop hook runs, while it waits for its turn
}

// runningContainer returns the containers that may run, in the order of the pod's spec.
func (s *stopper) running(listed []*runtimeapi.Container) (out []*runningContainer) {
	for _, c := range listed {
		if state := c.GetState(); state != runtimeapi.ContainerState_CONTAINER_RUNNING &&
			state != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			continue
		}
		fact, err := facts.Listed(c)
		if err != nil { // it lacks a label: it has no name, and no hook
			fact = messages.ContainerFact{ID: c.GetId()}
		}
		r := &runningContainer{fact: fact}
		for i := range s.pod.Spec.InitContainers {
			if spec := &s.pod.Spec.InitContainers[i]; spec.Name == fact.Name {
				r.spec, r.position, r.order.Sidecar = spec, i, translate.RestartsAlways(spec)
			}
		}
		for i := range s.pod.Spec.Containers {
			if spec := &s.pod.Spec.Containers[i]; spec.Name == fact.Name {
				r.spec, r.position = spec, i
			}
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *runningContainer) int { return a.position - b.position })
	return out
}

// containerStopResult is the result of one container's stop.
type containerStopResult struct {
	container *runningContainer
	err       error
}

// stopInOrder stops the containers in the order of stoporder. After a failure, later stops are not started.
func (s *stopper) stopInOrder(ctx context.Context, left []*runningContainer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, pending := make(chan containerStopResult, len(left)), 0
	over := time.NewTimer(s.rest()) // sidecars no longer wait for one another then
	defer over.Stop()
	var errs []error
	for {
		list := make([]stoporder.Container, len(left))
		for i, c := range left {
			list[i] = c.order
		}
		rest := time.Until(s.until)
		for _, step := range stoporder.Next(list, max(rest, time.Second), rest, false) {
			c := left[step.Index]
			switch {
			case c.order.Begun:
			case !step.HookOnly:
				c.order.Begun = true
				pending++
				go func() { results <- containerStopResult{c, s.stopOne(ctx, c, step.Grace)} }()
			case !c.hook:
				c.hook = true
				left := s.host.NewGrace(step.Grace)
				go func() { _ = s.guard(c, func() error { s.preStop(ctx, c, step.Grace, left); return nil }) }()
			}
		}
		if pending == 0 {
			return errors.Join(errs...)
		}
		select {
		case e := <-results:
			pending--
			if e.err != nil {
				errs = append(errs, e.err) // it may still run
				continue
			}
			left = slices.DeleteFunc(left, func(c *runningContainer) bool { return c == e.container })
		case <-over.C:
		}
	}
}

// stopOne runs the container's pre-stop hook, stops the container within the rest of grace, and ends its hooks.
func (s *stopper) stopOne(ctx context.Context, c *runningContainer, grace time.Duration) error {
	return s.guard(c, func() error {
		left := s.host.NewGrace(grace)
		s.preStop(ctx, c, grace, left)
		rest := max(left.Rest(), min(grace, stoporder.LeastGrace))
		err := host.Ignore(s.host.CRI.StopContainer(cri.WithoutSlot(ctx), c.fact.ID, rest))
		if err == nil {
			s.host.EndHooks(string(s.pod.UID), c.fact.ID)
		}
		return err
	})
}

// preStop runs the container's pre-stop hook and waits for it, as long as the pod's grace period is not over.
func (s *stopper) preStop(ctx context.Context, c *runningContainer, grace time.Duration, left *host.Grace) {
	if s.rest() == 0 {
		return
	}
	hooks.PreStop(ctx, s.host, messages.StopContainer{UID: string(s.pod.UID), Name: c.fact.Name, Fact: c.fact, Pod: s.pod,
		Spec: c.spec, IPs: s.ips, Grace: grace}, left)
}

// guard calls f. It returns a panic, which would end the process, as an error of this container.
func (s *stopper) guard(c *runningContainer, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while stopping container %s: %v", c.fact.ID, r)
		}
	}()
	return f()
}
