package agent

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/sources/submit"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// chaosOptions give the engine the names of pods, and in a cluster the node's Events.
func (a *Agent) chaosOptions() chaos.Options {
	o := chaos.Options{Pod: func(uid string) (chaos.Pod, bool) {
		now := a.board.Now()
		for _, all := range [][]pods.Published{now.Pods, now.Over} {
			for i := range all {
				if p := all[i].Pod; string(p.UID) == uid {
					return chaos.Pod{
						Namespace: p.Namespace, Name: p.Name, Manifest: submit.NameInManifest(p), Labels: p.Labels,
					}, true
				}
			}
		}
		return chaos.Pod{}, false
	}}
	if a.cluster != nil {
		o.Report = func(text string) {
			a.system.Tell(messages.Events, messages.NodeEvent(a.node.NodeName, v1.EventTypeWarning, messages.EventChaos, text,
				time.Now()))
		}
	}
	return o
}
