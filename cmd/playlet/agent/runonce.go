package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/config"
)

// onceLimit bounds how long --runonce waits for its pods. Pulls may take long.
const onceLimit = 15 * time.Minute

// onceQuiet is how long nothing may change before --runonce believes that it has seen all: a file that cannot be read is
// looked at again for a moment, since it may be half written, before a source calls it bad.
const onceQuiet = time.Second

// checkRunOnce rejects --runonce on a node of a cluster.
func checkRunOnce(node *config.Node) error {
	if node.Kubelet.RunOnce && !node.Standalone() {
		return errors.New("--runonce runs the pods of manifests alone: it cannot be used with --kubeconfig")
	}
	return nil
}

// runOnce waits until every desired pod runs or has completed successfully. The error names the other pods, and the manifests
// that could not be read.
func runOnce(ctx context.Context, board *pods.Board, limit time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	logged := map[string]bool{}
	for now := board.Now(); ; {
		done, waiting := judge(now)
		for _, p := range now.Pods {
			if name := p.Pod.Namespace + "/" + p.Pod.Name; cameUp(&p) && !logged[name] {
				logged[name] = true
				text := "pod finished"
				if p.Status.Phase == v1.PodRunning {
					text = "pod is running"
				}
				log.Info(text, "pod", name, "phase", p.Status.Phase)
			}
		}
		next, err := nextWithin(ctx, board, now.Version, done)
		switch {
		case err == nil:
			now = next
		case done && ctx.Err() == nil:
			return verdictOf(now, nil)
		default:
			return errors.Join(verdictOf(now, waiting), fmt.Errorf("--runonce: no longer waited: %w", err))
		}
	}
}

// nextWithin waits for a newer snapshot: until ctx ends, or, where all is done as far as is known, for a moment.
func nextWithin(ctx context.Context, board *pods.Board, version uint64, done bool) (*pods.Snapshot, error) {
	if done {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, onceQuiet)
		defer cancel()
	}
	return board.After(ctx, version)
}

// judge reports whether all desired pods are known and have reached a stable state. Otherwise it returns those still pending.
func judge(now *pods.Snapshot) (done bool, waiting []string) {
	if now.Version == 0 {
		return false, []string{"no source has been heard yet"}
	}
	for _, s := range now.Unheard {
		waiting = append(waiting, "source "+s.String()+" has not been heard")
	}
	for _, p := range now.Pods {
		if cameUp(&p) {
			continue
		}
		why := "it is not up yet"
		if p.Waiting != nil {
			why = p.Waiting.Code + ": " + p.Waiting.Message
		}
		waiting = append(waiting, fmt.Sprintf("pod %s/%s: %s", p.Pod.Namespace, p.Pod.Name, why))
	}
	return len(waiting) == 0, waiting
}

// cameUp: the pod has ended, or all of its containers have been started and none waits.
func cameUp(p *pods.PublishedPod) bool {
	if p.Status == nil {
		return false
	}
	switch p.Status.Phase {
	case v1.PodSucceeded, v1.PodFailed:
		return true
	case v1.PodRunning:
	default:
		return false
	}
	if len(p.Status.ContainerStatuses) < len(p.Pod.Spec.Containers) {
		return false
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil || (c.State.Running == nil && c.State.Terminated == nil) {
			return false
		}
	}
	return true
}

// whyFailed is the status's own word or, where it has none, how its containers ended.
func whyFailed(s *v1.PodStatus) string {
	if text := strings.TrimSpace(s.Reason + " " + s.Message); text != "" {
		return text
	}
	var ends []string
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			ends = append(ends, fmt.Sprintf("container %s exited with code %d (%s)", c.Name, t.ExitCode, t.Reason))
		}
	}
	return strings.Join(ends, ", ")
}

// verdictOf returns the error that lists failed pods, pending pods and unusable manifests, with their reasons.
func verdictOf(now *pods.Snapshot, waiting []string) error {
	var errs []error
	for _, text := range waiting {
		errs = append(errs, errors.New(text))
	}
	for _, p := range now.Pods {
		if p.Status != nil && p.Status.Phase == v1.PodFailed {
			errs = append(errs, fmt.Errorf("pod %s/%s failed: %s", p.Pod.Namespace, p.Pod.Name, whyFailed(p.Status)))
		}
	}
	for _, p := range now.Problems {
		if p.Warning {
			continue
		}
		errs = append(errs, errors.New(api.ProblemText(p)))
	}
	if len(errs) > 0 {
		return fmt.Errorf("--runonce: not all pods run: %w", errors.Join(errs...))
	}
	return nil
}
