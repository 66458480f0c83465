// Package ender is the actor that ends a pod in the place of the pod's own actor, which panics so often that it is in quarantine.
// It shares nothing with that actor's machine: it stops what the runtime has of the pod, unmounts, removes, and reports the final
// status. It runs no pre-stop hooks and stops sidecars beside the other containers, for what it has to know is little and its
// decisions are few. It derives all from what it is told and reads, so that it may be killed at any message.
package ender

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// workTimeout is how long the work towards the runtime may take, besides the grace period, until it is asked for again, which
// joins it.
const workTimeout = 2 * time.Minute

// New makes actors of the kind "ender", named by the UID of their pod.
func New(h *host.Host) supervisors.Constructor {
	return func(uid string) supervisors.Actor { return &actor{host: h, machine: newMachine(uid)} }
}

type actor struct {
	host    *host.Host
	machine *machine
	timer   supervisors.Timer
}

// due is what the timer posts.
type due struct{}

// Receive implements supervisors.Actor.
func (a *actor) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started, due:
		msg = nil
	case messages.PodWanted, messages.PodObserved, messages.VolumesUnmounted, messages.PodCgroupRemoved, stopped, removed:
	case messages.ServiceStarted:
		clear(a.machine.asks) // whatever it forgot is asked again; work is joined
		msg = nil
	default:
		ctx.Unhandled(m)
		return
	}
	for _, e := range a.machine.step(ctx.Now(), msg) {
		a.do(ctx, e)
	}
}

func (a *actor) do(ctx supervisors.Context, e any) {
	m := a.machine
	switch e := e.(type) {
	case moved:
		ctx.Log().Info("ending a pod whose actor is in quarantine", "from", e.from, "to", e.to, "podUID", m.uid)
	case tell:
		ctx.Tell(e.to, e.msg)
	case stop:
		a.work(ctx, "stop all containers", e.until.Sub(ctx.Now())+workTimeout, func(c context.Context) any {
			return stopped{stopAll(c, a.host, m.uid, e.until)}
		})
	case remove:
		pod := m.wanted.Pod
		a.work(ctx, "remove the pod from the runtime", workTimeout,
			func(c context.Context) any { return removed{a.host.RemovePod(c, pod)} })
	case wake:
		supervisors.Cancel(a.timer)
		a.timer = ctx.After(e.at.Sub(ctx.Now()), due{})
	}
}

func (a *actor) work(ctx supervisors.Context, name string, timeout time.Duration, run func(context.Context) any) {
	order := a.machine.wanted.Order
	ctx.Do(supervisors.Work{Name: name, Timeout: max(timeout, workTimeout),
		Run: func(c context.Context) any { return run(cri.WithPriority(c, order)) }})
}

// Inspect implements supervisors.Inspectable.
func (a *actor) Inspect() any {
	return map[string]string{"state": string(a.machine.state), "failure": a.machine.failure}
}

// stopAll stops all containers of the pod side by side, with the grace that is left until the time, and then its sandboxes.
// Starts that are under way are awaited first. A stop to the same time that is under way is joined; the runtime goes by the
// shortest.
func stopAll(ctx context.Context, h *host.Host, uid string, until time.Time) error {
	key := uid + "/end/" + strconv.FormatInt(until.UnixMilli(), 10)
	_, err := h.Ops.Do(ctx, key, max(time.Until(until), 0)+workTimeout-10*time.Second, func(ctx context.Context) (any, error) {
		return nil, stopNow(ctx, h, uid, until)
	})
	return host.Joined(err)
}

func stopNow(ctx context.Context, h *host.Host, uid string, until time.Time) error {
	settle, cancel := context.WithTimeout(ctx, h.Reap(3))
	err := h.Ops.Settle(settle, uid+"/start/")
	cancel()
	if err != nil {
		return err
	}
	containers, err := h.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	errs := make([]error, len(containers))
	var wg sync.WaitGroup
	for i, c := range containers {
		if s := c.GetState(); s != runtimeapi.ContainerState_CONTAINER_RUNNING &&
			s != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			continue
		}
		wg.Go(func() { errs[i] = stopOne(ctx, h, c.GetId(), until) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	sandboxes, err := h.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	errs = nil
	for _, s := range sandboxes {
		errs = append(errs, host.Ignore(h.CRI.StopPodSandbox(ctx, s.GetId())))
	}
	return errors.Join(errs...)
}

// stopOne stops one container. A panic, which would end the process here, is an error of this container.
func stopOne(ctx context.Context, h *host.Host, id string, until time.Time) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while stopping container %s: %v", id, r)
		}
	}()
	return host.Ignore(h.CRI.StopContainer(ctx, id, max(time.Until(until), time.Second)))
}
