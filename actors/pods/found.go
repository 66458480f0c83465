package pods

import (
	"slices"
	"time"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

func (a *actor) auditEnded(ctx supervisors.Context, m messages.RuntimeAudited) {
	if m.ReadAt.Before(a.began) {
		return // on its way to an earlier life of this actor
	}
	a.audited = true
	for _, e := range a.entries {
		e.found = nil
		if e.goneAt.Before(m.ReadAt) {
			e.goneAt = time.Time{}
		}
	}
	for i := range m.Pods {
		f := &m.Pods[i]
		e := a.entry(f.UID, f.Namespace+"/"+f.Name)
		if a.opts.Named(e.uid, e.name); !e.hasActor() && e.goneAt.IsZero() {
			e.found = f
		}
	}
	a.reconcile(ctx)
}

// orphaned says that what was found of a pod is nobody's.
func (a *actor) orphaned(e *entry) bool {
	return e.want == nil && e.found != nil && a.knownUnwanted(e.found) && (!a.opts.Unheard || a.opts.Own != "" &&
		slices.ContainsFunc(e.found.Sandboxes, func(s messages.SandboxFact) bool { return s.Source == a.opts.Own }))
}

// knownUnwanted says that a pod which no source names is wanted by none: all have been heard, or its own, by the mark on its
// sandboxes. So no pod of a manifest waits for an API server, which may be the very pod.
func (a *actor) knownUnwanted(f *messages.PodFacts) bool {
	if a.sourcesHeard() {
		return true
	}
	for _, s := range f.Sandboxes {
		source, ok := marks[s.Source]
		if _, heard := a.lists[source]; !ok || !heard {
			return false
		}
	}
	return len(f.Sandboxes) > 0
}

// marks are the sources by what they write into the annotation kubernetes.io/config.source.
var marks = map[string]messages.Address{"file": messages.File, "http": messages.URL, "submit": messages.Submit,
	"api": messages.APIServer}
