package pods

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// heldMemory is how long a folder is remembered after its last report. Within that time its return is not reported.
const heldMemory = time.Hour

// takeHeld publishes the kept folders, and records an Event of each new one: of its pod if that is here, and of the node
// otherwise. A folder may be absent from an incomplete report, and its error may change.
func (a *actor) takeHeld(ctx supervisors.Context, now []messages.HeldFolder) {
	seen := a.publishing.heldSeen
	if seen == nil {
		seen = map[messages.HeldFolder]time.Time{}
		a.publishing.heldSeen = seen
	}
	maps.DeleteFunc(seen, func(_ messages.HeldFolder, at time.Time) bool { return ctx.Now().Sub(at) > heldMemory })
	for _, f := range now {
		key := f
		key.Error = ""
		_, known := seen[key]
		if seen[key] = ctx.Now(); known {
			continue
		}
		var node string
		if n := a.opts.LocalNode.Node.Object; n != nil {
			node = n.Name
		}
		event := messages.NodeEvent(node, v1.EventTypeWarning, messages.EventVolumeHeld, explain.Held(f).Cause, ctx.Now())
		if e := a.entries[f.UID]; e != nil && e.pod != nil {
			event = messages.PodEvent(e.pod, "", v1.EventTypeWarning, messages.EventVolumeHeld, explain.Held(f).Cause, ctx.Now())
		}
		ctx.Tell(messages.Events, event)
	}
	if slices.Equal(now, a.publishing.held) {
		return
	}
	a.publishing.held = now
	a.changed(ctx)
}

// heldOf returns the folders of one pod.
func heldOf(uid string, all []messages.HeldFolder) (out []messages.HeldFolder) {
	for _, f := range all {
		if f.UID == uid {
			out = append(out, f)
		}
	}
	return out
}
