package submissions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/messages"
)

// uids returns the pods with results by UID, without duplicates.
func (c *submitCommand) uids() map[string]messages.SubmittedPod {
	out := map[string]messages.SubmittedPod{}
	for _, p := range c.done {
		if p.Kind == "" {
			out[p.UID] = p
		}
	}
	return out
}

// condition returns the function that reports whether a pod satisfies the condition of --for. A created pod may have the UID of
// an earlier one, which was removed a moment ago and ends first.
func (c *submitCommand) condition() func(*api.Pod) (bool, error) {
	uids, begun := c.uids(), map[string]bool{} // by UID
	return func(p *api.Pod) (bool, error) {
		uid := string(p.Pod.UID)
		begun[uid] = begun[uid] || p.Ending == "" || uids[uid].Change != messages.PodCreated
		if !begun[uid] {
			return false, nil
		}
		return settled(p, c.until, c.Now())
	}
}

// awaitEnd waits until every pod satisfies the condition of --for.
func (c *submitCommand) awaitEnd(ctx context.Context) error {
	done := c.condition()
	for {
		if err := c.await(ctx, c.until, done); err != nil || c.until != untilReady {
			return err
		}
		if lasts, err := c.lasts(ctx, done); lasts || err != nil {
			return err
		}
	}
}

// lasts looks again a moment later at pods without readiness probes: those are ready for a moment before their containers fail.
func (c *submitCommand) lasts(ctx context.Context, done func(*api.Pod) (bool, error)) (bool, error) {
	uids := c.uids()
	momentary := func(all *api.Pods) (out []*api.Pod) {
		for i := range all.Pods {
			p := &all.Pods[i]
			_, ours := uids[string(p.Pod.UID)]
			if ours && p.Pod.Status.Phase != v1.PodSucceeded && slices.ContainsFunc(p.Pod.Spec.Containers,
				func(c v1.Container) bool { return c.ReadinessProbe == nil }) {
				out = append(out, p)
			}
		}
		return out
	}
	all, err := c.Client.Pods(ctx, api.Filter{})
	if err == nil && len(momentary(all)) == 0 || !cli.Pause(ctx, c.readyFor) {
		return true, nil // the condition was satisfied
	}
	if all, err = c.Client.Pods(ctx, api.Filter{}); err != nil {
		return false, nil //nolint:nilerr // the wait is repeated, which reports the failure
	}
	for _, p := range momentary(all) {
		if is, err := done(p); !is || err != nil {
			return false, err
		}
	}
	return true, nil
}

// settled reports whether a pod satisfies the condition, or an error if it is not expected to.
func settled(p *api.Pod, until string, now time.Time) (bool, error) {
	name := names.Full(p)
	why := func(text string) string { return cli.Plain(cmp.Or(p.Cause, text)) }
	switch s := p.Pod.Status; {
	case s.Phase == v1.PodSucceeded:
		return true, nil
	case s.Phase == v1.PodFailed:
		return false, fmt.Errorf("pod %s has failed: %s", name, why(failureOf(p)))
	case p.Ending != "":
		return false, fmt.Errorf("pod %s is going: %s", name, why(p.Ending))
	case until == untilReady && api.Condition(p.Pod, v1.PodReady):
		return true, nil
	case p.Waiting != nil && p.Waiting.Permanent:
		return false, fmt.Errorf("pod %s will not run: %s", name, summary.WaitingFor(p, now))
	case until == untilCompleted && p.Pod.Spec.RestartPolicy == v1.RestartPolicyAlways:
		return false, fmt.Errorf("pod %s does not complete: its restartPolicy is Always", name)
	}
	for _, c := range slices.Concat(p.Pod.Status.InitContainerStatuses, p.Pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason == messages.ReasonCrashLoopBackOff && c.RestartCount > 0 {
			return false, fmt.Errorf("pod %s does not become %s: %s", name, until,
				why(fmt.Sprintf("container %s keeps exiting", c.Name)))
		}
	}
	return false, nil
}

// failureOf names the container that has failed, and how it ended.
func failureOf(p *api.Pod) string {
	for _, c := range slices.Concat(p.Pod.Status.InitContainerStatuses, p.Pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return fmt.Sprintf("container %s exited with code %d (%s)", c.Name, t.ExitCode, t.Reason)
		}
	}
	return cmp.Or(p.Pod.Status.Message, api.Summarize(p).Status)
}
