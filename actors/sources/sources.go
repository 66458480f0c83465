// Package sources is the actor that holds the sources of pods apart: each is a child of its own, so that one that fails
// never stops another. What a source wants goes from it to pods directly; this actor only passes on that pods has
// forgotten it.
package sources

import (
	"slices"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// Options are what the actor needs.
type Options struct {
	// Sources are the addresses of the sources that the configuration switched on.
	Sources []messages.Address
}

// New makes the constructor of the actor.
func New(opts Options) supervisors.Constructor {
	children := slices.Clone(opts.Sources)
	return func(string) supervisors.Actor { return &sources{children} }
}

type sources struct{ children []messages.Address }

func (s *sources) Receive(ctx supervisors.Context, msg any) {
	switch m := msg.(type) {
	case messages.Started:
		// The children are rows of the tree, which starts them; each sends what it wants when it has read it.
	case messages.ServiceStarted:
		if m.Service != messages.Pods {
			ctx.Unhandled(m)
			return
		}
		for _, source := range s.children {
			ctx.Tell(source, messages.ResendDesired{})
		}
	case messages.ChildStarted, messages.ChildStopped:
		// A source that starts reads its own truth, and needs nothing from here.
	case messages.ChildQuarantined:
		// pods keeps what a source wanted last in force; health learns of the source from the layer.
		ctx.Log().Warn("a source is in quarantine; what it last wanted stays in force",
			"source", m.Name, "reason", m.Reason, "until", m.Until)
	default:
		ctx.Unhandled(msg)
	}
}
