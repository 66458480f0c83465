package agent

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// endChaos ends all rules, and waits until the Events of what they did are kept.
func (a *Agent) endChaos(ctx context.Context) {
	if a.chaos == nil {
		return
	}
	a.chaos.Close()
	if a.system == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// Its answer comes after what it was told before.
	if _, err := a.system.Ask(ctx, messages.Events, messages.GetInspection{}); err != nil {
		a.log.Warn("the last Events of what chaos did may not be kept", "reason", err)
	}
}

// chaosOptions give the engine the names of pods, and the node's Events: a standalone node keeps them for "playlet events".
func (a *Agent) chaosOptions() chaos.Options {
	o := chaos.Options{Pod: func(uid string) (chaos.Pod, bool) {
		now := a.board.Now()
		for _, of := range slices.Concat(now.Pods, now.Over) {
			if p := of.Pod; string(p.UID) == uid {
				return chaos.Pod{Namespace: p.Namespace, Name: p.Name, Manifest: submit.NameInManifest(p), Labels: p.Labels}, true
			}
		}
		return chaos.Pod{}, false
	}}
	o.Report = func(text string) {
		a.system.Tell(messages.Events, messages.NodeEvent(a.node.NodeName, v1.EventTypeWarning, messages.EventChaos, text,
			time.Now()))
	}
	return o
}
