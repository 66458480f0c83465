package pods

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// sources holds the latest reports of the sources.
type sources struct {
	all     []messages.Address                             // in order of precedence
	lists   map[messages.Address]messages.SourcePodsWanted // of the sources that have reported
	unknown map[messages.Address]messages.SourcePodsWanted // of the sources that cannot report their pods yet
	// shutdown is set while the machine shuts down: spared pods then end as orphans, with their grace periods.
	shutdown bool
}

// missing returns the sources that have not reported their pods yet.
func (s *sources) missing() (out []messages.Address) {
	for _, source := range s.all {
		if _, ok := s.lists[source]; !ok {
			out = append(out, source)
		}
	}
	return out
}

// synced reports whether all sources have reported. Without any source the owners of pods are unknown.
func (s *sources) synced() bool { return len(s.all) > 0 && len(s.missing()) == 0 }

// problems returns the problems of all sources.
func (s *sources) problems() (out []messages.ManifestProblem) {
	for _, source := range s.all {
		out = append(append(out, s.lists[source].Problems...), s.unknown[source].Problems...)
	}
	return out
}

// marks maps the values of the annotation kubernetes.io/config.source to the sources.
var marks = map[string]messages.Address{"file": messages.File, "http": messages.URL, "submit": messages.Submit,
	"api": messages.APIServer}

// unwanted reports whether an unlisted pod belongs to no source: all sources have reported, or the pod's own, by the mark on its
// sandboxes. So no pod of a manifest waits for an API server, which may be that very pod.
func (s *sources) unwanted(f *messages.PodFacts) bool {
	if s.spares(f) != "" {
		return false
	}
	if s.synced() {
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

// spares returns the manifest for which a running pod that no source lists is left alone, or "". An unusable manifest may be the
// pod's, unless it has other names, a readable manifest of its source has the pod's name, or the pod left its manifest. A pod of
// a journal has lost its record, unless it left the journal.
func (s *sources) spares(f *messages.PodFacts) string {
	if s.shutdown && f.Alive() {
		return ""
	}
	for _, source := range s.all {
		said := s.lists[source]
		unread := slices.DeleteFunc(slices.Clone(said.Unread), func(path string) bool {
			names, known := said.UnreadNames[path]
			return known && !slices.ContainsFunc(names, func(name string) bool { return mayBeNamed(f, name) })
		})
		if said.Journal != "" && markedBy(f) == source {
			unread = append(unread, said.Journal)
		}
		if len(unread) == 0 || said.Gone[f.UID] || !mayBeOf(f, source) {
			continue
		}
		named, stale := false, false
		for _, p := range said.Pods {
			if p.Namespace == f.Namespace && p.Name == f.Name {
				named, stale = true, said.Stale[string(p.UID)]
			}
		}
		if !named || stale && f.Alive() {
			path := unread[0]
			for _, p := range said.Problems {
				if p.Pod == f.Namespace+"/"+f.Name && !p.Warning {
					path = p.Path
				}
			}
			return path
		}
	}
	return ""
}

// mayBeNamed reports whether a manifest with this namespace/name may be that of a found pod, to whose name the name of this node,
// or an earlier one, is appended.
func mayBeNamed(f *messages.PodFacts, name string) bool {
	full := f.Namespace + "/" + f.Name
	return full == name || strings.HasPrefix(full, name+"-")
}

// reportedGone reports whether a source saw the pod leave its manifests.
func (s *sources) reportedGone(uid string) bool {
	for _, said := range s.lists {
		if said.Gone[uid] {
			return true
		}
	}
	return false
}

// mayBeOf reports whether a pod's sandboxes carry the mark of a source, or no mark.
func mayBeOf(f *messages.PodFacts, source messages.Address) bool {
	marked := false
	for _, sandbox := range f.Sandboxes {
		of, known := marks[sandbox.Source]
		if known && of == source {
			return true
		}
		marked = marked || known
	}
	return !marked && source != messages.APIServer
}

// markedBy returns the source of the first marked sandbox of a found pod, or "".
func markedBy(f *messages.PodFacts) messages.Address {
	for _, sandbox := range f.Sandboxes {
		if source, known := marks[sandbox.Source]; known {
			return source
		}
	}
	return ""
}

// spared returns the manifest for which the unlisted pod of an entry is left alone, or "".
func (a *actor) spared(e *entry) string {
	if e.state != unclaimed || e.wanted != nil || e.audited == nil {
		return ""
	}
	return a.sources.spares(e.audited)
}

// unread reports whether any source has an unusable manifest.
func (s *sources) unread() bool {
	for _, said := range s.lists {
		if len(said.Unread) > 0 {
			return true
		}
	}
	return false
}

// sparedProblem reports a pod that is left alone for an unusable manifest.
func sparedProblem(e *entry, manifest string) messages.ManifestProblem {
	text := "pod " + e.name + " runs, and no manifest that can be used names it; it is left as it is until this one is " +
		"corrected or removed"
	if markedBy(e.audited) == messages.Submit {
		text = "pod " + e.name + " runs, and the journal of submissions has no usable record of it; it is left as it is: " +
			"restore the journal or mount its file system, submit the pod again, or end it with playlet rm"
	}
	return messages.ManifestProblem{Path: manifest, Pod: e.name, Message: text}
}

// orphaned reports whether a found pod belongs to no source.
func (a *actor) orphaned(e *entry) bool {
	return e.wanted == nil && e.audited != nil && a.sources.unwanted(e.audited) && (!a.opts.Unheard || a.opts.Own != "" &&
		slices.ContainsFunc(e.audited.Sandboxes, func(s messages.SandboxFact) bool { return s.Source == a.opts.Own }))
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
	// If two sources list the same UID, the one configured first wins.
	for _, e := range a.entries {
		e.wanted, e.within = nil, nil
	}
	a.wanted = nil
	for _, s := range a.sources.all {
		said := a.sources.lists[s]
		for _, p := range said.Pods {
			if e := a.entry(string(p.UID), fullName(p), ctx.Now()); e.wanted == nil {
				e.wanted = &desiredPod{p, s, said.Manifests[fullName(p)]}
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
