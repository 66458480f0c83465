package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

func postStart(c *v1.Container) *v1.LifecycleHandler {
	if c.Lifecycle == nil {
		return nil
	}
	return c.Lifecycle.PostStart
}

// pendingPath returns the path of the record that the post-start hook has not succeeded yet. It is written before the container
// is started, so that a hook interrupted by the agent's death runs again: it runs at least once. Containers that a kubelet
// started have no such record, and their hooks do not run again.
func pendingPath(h *host.Host, w messages.RunContainer) string {
	return filepath.Join(h.ContainerDir(string(w.Pod.UID), w.Container.Name), "post-start.json")
}

func noteHook(h *host.Host, w messages.RunContainer, id string) error {
	if postStart(w.Container) == nil {
		return nil
	}
	return (hooks.Record{ID: id}).Save(pendingPath(h, w))
}

// hookPending reports whether the container's hook has not succeeded yet.
func hookPending(h *host.Host, w messages.RunContainer, id string) bool {
	if postStart(w.Container) == nil {
		return false
	}
	_, pending := hooks.RecordOf(pendingPath(h, w), id)
	return pending
}

// hookResult is the result of the post-start hook.
type hookResult struct {
	id     string
	failed error
	// fallback: see hooks.Call.
	fallback string
}

// retryStop is the timer for another stop of a container whose post-start hook failed.
type retryStop struct{ id string }

// runPostStart runs the hook, or joins the run in progress, which outlives the actor.
func runPostStart(ctx context.Context, h *host.Host, w messages.RunContainer, id string) hookResult {
	key := host.PostStartKey(string(w.Pod.UID), id)
	fallback, err := cri.Run(ctx, h.Ops, key, hooks.Limit, func(ctx context.Context) (string, error) {
		path := pendingPath(h, w)
		if before, _ := hooks.RecordOf(path, id); before.ID == id && before.Failed != "" {
			return "", errors.New(before.Failed) // recorded by an earlier agent
		}
		m := stopOf(h, w, messages.ContainerFact{ID: id}, hooks.Limit, messages.Cause{})
		fallback, err := hooks.Call(ctx, h, m, postStart(w.Container), w.Container.Ports)
		if err != nil {
			if ctx.Err() != nil {
				return "", err // it was cut off
			}
			failed := hooks.Record{ID: id, Failed: hooks.FirstBytes(err)}
			if err := failed.Save(path); err != nil {
				supervisors.LogOf(ctx).Warn("the end of a post-start hook cannot be noted; it may run again", "error", err)
			}
			return "", err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			supervisors.LogOf(ctx).Warn("the note of a post-start hook cannot be removed; it may run again", "error", err)
		}
		return fallback, nil
	})
	return hookResult{id: id, failed: host.Joined(err), fallback: fallback}
}

// stopOf returns the request to stop w's container.
func stopOf(h *host.Host, w messages.RunContainer, f messages.ContainerFact, grace time.Duration,
	why messages.Cause) messages.StopContainer {
	ips := w.Sandbox.IPs
	if w.Pod.Spec.HostNetwork {
		ips = h.NodeIPs()
	}
	return messages.StopContainer{
		UID: string(w.Pod.UID), Name: w.Container.Name, Fact: f, Pod: w.Pod, Spec: w.Container, IPs: ips, Grace: grace,
		Cause: why, Order: w.Order,
	}
}

// hook starts the post-start hook. The container does not count as started until the hook has ended.
func (a *actor) hook(ctx supervisors.Context) {
	a.enter(messages.StageHooking)
	a.report(ctx)
	h, w, id := a.host, a.desired, a.fact.ID
	ctx.Do(supervisors.Work{Name: "post-start hook", Timeout: hooks.Limit + time.Minute, Run: func(c context.Context) any {
		return runPostStart(cri.WithPriority(c, w.Order), h, w, id)
	}})
}

// handleHook handles the result of the hook. A failed hook stops the container; the pod handles that as any end.
func (a *actor) handleHook(ctx supervisors.Context, d hookResult) {
	if a.stage != messages.StageHooking || d.id != a.fact.ID {
		return
	}
	a.enter(messages.StageRunning)
	a.recordFallback(ctx, d.fallback)
	if d.failed == nil {
		a.report(ctx)
		return
	}
	why := messages.Cause{Code: messages.CausePostStart, Text: hooks.FirstBytes(d.failed)}
	ctx.Log().Warn("the post-start hook failed; stopping the container", "id", d.id, "reason", messages.EventFailedPostStartHook,
		"error", why.Text)
	a.explained(ctx, a.desired.Pod, messages.EventFailedPostStartHook, "PostStartHook failed",
		messages.Reason{Code: messages.ReasonKilling, Cause: why})
	grace := podspec.GracePeriod(a.desired.Pod.Spec.TerminationGracePeriodSeconds)
	a.hookFailed = new(stopOf(a.host, a.desired, a.fact, grace, why))
	a.report(ctx)
	a.end(ctx, *a.hookFailed)
}
