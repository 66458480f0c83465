package pods

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
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

// orphan is a pod made from what the runtime says of it: enough to end it gracefully. It names no containers; those
// found carry their hooks in annotations.
func orphan(f *messages.PodFacts) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: f.Name, Namespace: f.Namespace, UID: types.UID(f.UID)}}
	grace := int64(-1)
	for _, c := range f.Containers {
		for _, key := range []string{cri.AnnotationDeletionGracePeriod, cri.AnnotationTerminationGracePeriod} {
			if n, err := strconv.ParseInt(c.Annotations[key], 10, 64); err == nil {
				grace = max(grace, n)
				break
			}
		}
	}
	if grace >= 0 {
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	return p
}

// foundClaim is what a pod that was found holds, by what is kept of it and what its containers carry. Of one that a kubelet made
// it is known what ports it has, but not what it requests.
func foundClaim(f *messages.PodFacts, kept *podspec.Allocation) *admission.Claim {
	p := orphan(f)
	named := map[string]bool{}
	for i := range f.Containers { // newest first
		c := &f.Containers[i]
		if named[c.Name] || c.State == messages.ContainerExited {
			continue
		}
		named[c.Name] = true
		spec := v1.Container{Name: c.Name}
		// What cannot be read is as if it were not there: anybody may have written it.
		if json.Unmarshal([]byte(c.Annotations[cri.AnnotationPorts]), &spec.Ports) != nil {
			spec.Ports = nil
		}
		own, pods := translate.MadeWith(c.Annotations)
		spec.Resources, p.Spec.Resources = ptr.Deref(own, spec.Resources), cmp.Or(p.Spec.Resources, ofPod(pods))
		p.Spec.Containers = append(p.Spec.Containers, spec)
	}
	return admission.NewClaim(kept.In(p))
}
