// Package sources is the actor that isolates the sources of pods: each is a child of its own, so that a failing source never
// stops another. A source sends its desired pods to the pods actor directly. This actor only forwards the start of the pods
// actor.
package sources

import (
	"slices"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options configures the actor.
type Options struct {
	// Sources are the addresses of the configured sources.
	Sources []messages.Address
}

// New returns the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	children := slices.Clone(opts.Sources)
	return func(string) supervisors.Actor { return &sources{children} }
}

type sources struct{ children []messages.Address }

func (s *sources) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		// The children are rows of the tree, which starts them. Each sends its desired pods once it has read them.
	case messages.ServiceStarted:
		if m.Service != messages.Pods {
			ctx.Unhandled(m)
			return
		}
		for _, source := range s.children {
			ctx.Tell(source, messages.ResendDesired{})
		}
	case messages.ChildStarted, messages.ChildStopped:
		// A starting source reads its own data, and needs nothing from here.
	case messages.ChildQuarantined:
		// The pods actor keeps the source's last desired pods. Health learns of the quarantine from the supervision layer.
		ctx.Log().Warn("a source is in quarantine; its last set of pods stays in force",
			"source", m.Name, "reason", m.Reason, "until", m.Until)
	default:
		ctx.Unhandled(msg)
	}
}
