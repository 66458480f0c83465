package pods

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// foundClaims are what pods hold of the node that were found running and of which no source has told yet.
func (a *actor) foundClaims() []*admission.Claim {
	var out []*admission.Claim
	for _, f := range a.unclaimed() {
		if runs(f) {
			out = append(out, foundClaim(f))
		}
	}
	return out
}

// runs says that something of a pod runs, as far as the runtime's lists tell.
func runs(f messages.PodFacts) bool {
	return slices.ContainsFunc(f.Sandboxes, func(s messages.SandboxFact) bool { return s.Ready }) ||
		slices.ContainsFunc(f.Containers, func(c messages.ContainerFact) bool {
			return c.State == messages.ContainerRunning || c.State == messages.ContainerUnknown
		})
}

// foundClaim is what a pod that was found holds, by what its containers carry. Of one that a kubelet made it is known what
// ports it has, but not what it requests.
func foundClaim(f messages.PodFacts) *admission.Claim {
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
		if json.Unmarshal([]byte(c.Annotations[cri.AnnotationResources]), &spec.Resources) != nil {
			spec.Resources = v1.ResourceRequirements{}
		}
		p.Spec.Containers = append(p.Spec.Containers, spec)
	}
	return admission.NewClaim(p)
}
