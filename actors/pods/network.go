package pods

import (
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// runtimeChanged takes the runtime's state. A network that comes or goes is told to each pod that needs it to begin.
func (a *actor) runtimeChanged(ctx supervisors.Context, m messages.RuntimeStateChanged) {
	was := noNetwork(a.runtime)
	a.runtime = m
	a.changed(ctx)
	if was == noNetwork(m) {
		return
	}
	for uid, e := range a.entries {
		if !e.pod.Spec.HostNetwork && e.ending == nil && !e.gone && a.finished[uid] == nil {
			a.renew(ctx, e)
		}
	}
}

// noNetwork is why pods cannot be given a network. A runtime that is away says nothing of it.
func noNetwork(r messages.RuntimeStateChanged) messages.Reason {
	if !r.Ready || r.NetworkReady {
		return messages.Reason{}
	}
	return messages.Reason{Code: messages.ReasonNetworkNotReady, Message: "network is not ready: " + r.NetworkReason}
}

// noNetwork is why the pod cannot be given one, where it needs one.
func (e *entry) noNetwork(r messages.RuntimeStateChanged) *messages.Reason {
	why := noNetwork(r)
	if e.pod.Spec.HostNetwork || why.Code == "" {
		return nil
	}
	return &why
}
