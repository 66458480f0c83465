package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// sources is what the sources have told.
type sources struct {
	all     []messages.Address                             // in the order of their precedence
	lists   map[messages.Address]messages.SourcePodsWanted // of those that were heard
	unknown map[messages.Address]messages.SourcePodsWanted // of those that cannot say yet what they want
}

// unheard are those that have not told yet what they want.
func (s *sources) unheard() (out []messages.Address) {
	for _, source := range s.all {
		if _, ok := s.lists[source]; !ok {
			out = append(out, source)
		}
	}
	return out
}

// heard says that all have been heard. Without any source nobody knows whose pods these are.
func (s *sources) heard() bool { return len(s.all) > 0 && len(s.unheard()) == 0 }

// problems are those of all of them.
func (s *sources) problems() (out []messages.ManifestProblem) {
	for _, source := range s.all {
		out = append(append(out, s.lists[source].Problems...), s.unknown[source].Problems...)
	}
	return out
}

// marks are the sources by what they write into the annotation kubernetes.io/config.source.
var marks = map[string]messages.Address{"file": messages.File, "http": messages.URL, "submit": messages.Submit,
	"api": messages.APIServer}

// unwanted says that a pod which no source names is wanted by none: all have been heard, or its own, by the mark on its
// sandboxes. So no pod of a manifest waits for an API server, which may be the very pod.
func (s *sources) unwanted(f *messages.PodFacts) bool {
	if s.heard() {
		return true
	}
	for _, sandbox := range f.Sandboxes {
		source, ok := marks[sandbox.Source]
		if _, heard := s.lists[source]; !ok || !heard {
			return false
		}
	}
	return len(f.Sandboxes) > 0
}

// orphaned says that what was found of a pod is nobody's.
func (a *actor) orphaned(e *entry) bool {
	return e.want == nil && e.found != nil && a.sources.unwanted(e.found) && (!a.opts.Unheard || a.opts.Own != "" &&
		slices.ContainsFunc(e.found.Sandboxes, func(s messages.SandboxFact) bool { return s.Source == a.opts.Own }))
}

func (a *actor) sourceSays(ctx supervisors.Context, m messages.SourcePodsWanted) {
	for _, p := range m.Pods {
		a.opts.Named(string(p.UID), fullName(p))
	}
	if m.Unknown {
		a.sources.unknown[m.Source] = m
		a.changed(ctx)
		return
	}
	delete(a.sources.unknown, m.Source)
	a.sources.lists[m.Source] = m
	// Where two sources name the same UID, the one configured first counts.
	for _, e := range a.entries {
		e.want, e.within = nil, nil
	}
	a.wanted = nil
	for _, s := range a.sources.all {
		said := a.sources.lists[s]
		for _, p := range said.Pods {
			if e := a.entry(string(p.UID), fullName(p), ctx.Now()); e.want == nil {
				e.want = &want{p, s}
				a.wanted = append(a.wanted, e)
			}
		}
		for uid, seconds := range said.Graces {
			if e := a.entries[uid]; e != nil {
				e.within = new(max(seconds, vanishedGrace))
			}
		}
	}
	a.reconcile(ctx)
}

func fullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }
