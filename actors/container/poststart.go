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

// pendingPath is the note that the post-start hook has not ended well yet. It is there before the container is started, so that a
// hook that is cut off by the agent's death runs again: it is delivered at least once. What a kubelet started carries none, and
// its hook is not run again.
func pendingPath(h *host.Host, w messages.RunContainer) string {
	return filepath.Join(h.ContainerDir(string(w.Pod.UID), w.Container.Name), "post-start.json")
}

func noteHook(h *host.Host, w messages.RunContainer, id string) error {
	if postStart(w.Container) == nil {
		return nil
	}
	return (hooks.Record{ID: id}).Save(pendingPath(h, w))
}

// hookPending says whether the container's hook has not ended well yet.
func hookPending(h *host.Host, w messages.RunContainer, id string) bool {
	if postStart(w.Container) == nil {
		return false
	}
	_, pending := hooks.RecordOf(pendingPath(h, w), id)
	return pending
}

// hookDone is the result of the post-start hook.
type hookDone struct {
	id     string
	failed error
	// fallback: see hooks.Call.
	fallback string
}

// retryStop is the timer after which a container is ended again whose hook failed.
type retryStop struct{ id string }

// runPostStart runs the hook to its end, or joins the one that is under way: it outlives the actor.
func runPostStart(ctx context.Context, h *host.Host, w messages.RunContainer, id string) hookDone {
	key := host.PostStartKey(string(w.Pod.UID), id)
	fallback, err := cri.Run(ctx, h.Ops, key, hooks.Limit, func(ctx context.Context) (string, error) {
		path := pendingPath(h, w)
		if before, _ := hooks.RecordOf(path, id); before.ID == id && before.Failed != "" {
			return "", errors.New(before.Failed) // an agent before this one saw its end
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
	return hookDone{id: id, failed: host.Joined(err), fallback: fallback}
}

// stopOf is the request to end the container that was to run.
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

// hook has the post-start hook run. Until it has ended, the container has not started as far as others go.
func (a *actor) hook(ctx supervisors.Context) {
	a.enter(messages.StageHooking)
	a.report(ctx)
	h, w, id := a.host, a.desired, a.fact.ID
	ctx.Do(supervisors.Work{Name: "post-start hook", Timeout: hooks.Limit + time.Minute, Run: func(c context.Context) any {
		return runPostStart(cri.WithPriority(c, w.Order), h, w, id)
	}})
}

// hookDone takes the end of the hook. One that failed ends the container, which the pod answers as any end.
func (a *actor) hookDone(ctx supervisors.Context, d hookDone) {
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
	ctx.Log().Warn("the post-start hook failed; the container is ended", "id", d.id, "reason", messages.EventFailedPostStartHook,
		"error", why.Text)
	a.explained(ctx, a.desired.Pod, messages.EventFailedPostStartHook, "PostStartHook failed",
		messages.Reason{Code: messages.ReasonKilling, Cause: why})
	grace := podspec.GracePeriod(a.desired.Pod.Spec.TerminationGracePeriodSeconds)
	a.hookFailed = new(stopOf(a.host, a.desired, a.fact, grace, why))
	a.report(ctx)
	a.end(ctx, *a.hookFailed)
}
