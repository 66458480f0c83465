package container

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/hooks"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// minGrace is the time for the signal after the pre-stop hook has used up the grace period. The kubelet has the same.
const minGrace = 2 * time.Second

// stop runs the pre-stop hook, stops the container within the remaining grace period, and reads its final status. It joins a
// stop in progress, since a second stop would wait for the whole grace period again. A stop with less time than those in
// progress runs beside them, and cuts off the hook: the runtime applies the shortest grace period.
func stop(ctx context.Context, h *host.Host, m messages.StopContainer) stopResult {
	key, hurried := stopKey(h.Ops, m, time.Now())
	if hurried {
		h.Ops.CutOff(host.PreStopKey(m.UID, m.Fact.ID))
	}
	done, err := cri.Run(ctx, h.Ops, key, m.Grace+h.Reap(3), func(ctx context.Context) (stopResult, error) {
		return hookAndStop(ctx, h, m, hurried), nil
	})
	if err = host.Joined(err); err != nil {
		return stopResult{id: m.Fact.ID, fact: m.Fact, failed: err}
	}
	return done
}

// stopKey returns the key of the stop to join or to begin. hurried reports whether all stops in progress have more time. A key
// contains the deadline of its stop, by the monotonic clock. No deadline outlives the agent: as with the kubelet, the next agent
// grants the whole grace period again, and never more.
func stopKey(ops *cri.Operations, m messages.StopContainer, now time.Time) (key string, hurried bool) {
	until, prefix := now.Add(m.Grace), stopPrefix(m)
	for _, other := range ops.InFlight(prefix) {
		its, err := ops.ParseDeadline(strings.TrimPrefix(other, prefix))
		if err == nil && !its.After(until.Add(cri.GraceSlack)) {
			return other, false
		}
		hurried = true
	}
	return prefix + ops.Deadline(until), hurried
}

// stopPrefix returns the prefix of the keys of the container's stops.
func stopPrefix(m messages.StopContainer) string { return fmt.Sprintf("%s/stop/%s/", m.UID, m.Fact.ID) }

// hookAndStop runs the pre-stop hook, and stops the container even if the hook failed. The grace period, which both share, is
// paused while the runtime is away.
func hookAndStop(ctx context.Context, h *host.Host, m messages.StopContainer, hurried bool) stopResult {
	grace, done := h.NewGrace(m.Grace), stopResult{id: m.Fact.ID}
	if !hurried && !m.NoHook {
		done.hook = hooks.PreStop(ctx, h, m, grace) // a failure does not prevent the stop
	}
	m.AtOnce = m.AtOnce || hurried
	done.fact, done.failed = stopAndRead(ctx, h, m, max(grace.Rest(), min(minGrace, m.Grace)))
	return done
}

// endPauses are the waits for the status of a stopped container. If the container's process has just exited, containerd answers
// StopContainer at once, and updates the status only after it has handled the exit.
var endPauses = []time.Duration{
	20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

func stopAndRead(ctx context.Context, h *host.Host, m messages.StopContainer, grace time.Duration) (
	messages.ContainerFact, error) {
	stopping := ctx
	if m.AtOnce {
		stopping = cri.WithoutSlot(ctx)
	}
	if err := host.Ignore(h.CRI.StopContainer(stopping, m.Fact.ID, grace)); err != nil {
		return m.Fact, err
	}
	fact, err := readFact(ctx, h, m.Fact.ID, m.Fact.SandboxID)
	for _, pause := range endPauses {
		if err != nil || fact.State == messages.ContainerExited || fact.State == messages.ContainerCreated {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		fact, err = readFact(ctx, h, m.Fact.ID, m.Fact.SandboxID)
	}
	switch {
	case cri.IsNotFound(err):
		return m.Fact.Removed(time.Now()), nil
	case err != nil:
		return m.Fact, err
	case fact.State == messages.ContainerCreated:
		return fact, nil // it never ran, and runtimes do not change its state
	case fact.State != messages.ContainerExited:
		return fact, fmt.Errorf("the runtime reported container %s as stopped, but also as %s", m.Fact.ID, fact.State)
	}
	return fact, nil
}
