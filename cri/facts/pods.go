package facts

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// Listing is what the two lists of the CRI say of one pod, or of all.
type Listing struct {
	Sandboxes  []*runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
}

// ByPod splits a listing by the UID of the pod. What is not a pod's is left out, and what says whose it is but is
// malformed otherwise is kept, so that it is met when the pod is read.
func (l Listing) ByPod() map[string]Listing {
	out := map[string]Listing{}
	for _, s := range l.Sandboxes {
		if o, err := OwnerOf(s.GetLabels()); err == nil {
			p := out[o.UID]
			p.Sandboxes = append(p.Sandboxes, s)
			out[o.UID] = p
		}
	}
	for _, c := range l.Containers {
		// A container's owner is known by its sandbox too, but a kubelet labels both.
		if o, err := OwnerOf(c.GetLabels()); err == nil {
			p := out[o.UID]
			p.Containers = append(p.Containers, c)
			out[o.UID] = p
		}
	}
	return out
}

// Owner is the pod that the listing, of one pod, is about; uid where it lists nothing.
func (l Listing) Owner(uid string) Owner {
	for _, s := range l.Sandboxes {
		if o, err := OwnerOf(s.GetLabels()); err == nil && o.UID == uid {
			return o
		}
	}
	for _, c := range l.Containers {
		if o, err := OwnerOf(c.GetLabels()); err == nil && o.UID == uid {
			return o
		}
	}
	return Owner{UID: uid}
}

// Light is the pod's facts as far as lists have them: see Listed and ListedSandbox for what is missing. Items that are
// malformed are left out; the error joins what is wrong with them, and the facts hold whether there is one or not.
func (l Listing) Light(uid string, readAt time.Time) (messages.PodFacts, error) {
	o := l.Owner(uid)
	p := messages.PodFacts{UID: o.UID, Name: o.Name, Namespace: o.Namespace, ReadAt: readAt}
	var odd, more []error
	p.Sandboxes, odd = factsOf(l.Sandboxes, ListedSandbox)
	p.Containers, more = factsOf(l.Containers, Listed)
	Sort(&p)
	return p, errors.Join(append(odd, more...)...)
}

func factsOf[T, F any](list []T, fact func(T) (F, error)) (out []F, odd []error) {
	for _, one := range list {
		if f, err := fact(one); err != nil {
			odd = append(odd, err)
		} else {
			out = append(out, f)
		}
	}
	return out, odd
}

// Sort puts the newest first. Of sandboxes the attempt decides, which a clock set back cannot turn; containers of
// different names have no attempts in common, so their times decide.
func Sort(p *messages.PodFacts) {
	slices.SortFunc(p.Sandboxes, func(a, b messages.SandboxFact) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	slices.SortFunc(p.Containers, func(a, b messages.ContainerFact) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Attempt, a.Attempt), strings.Compare(b.ID, a.ID))
	})
}

// PodFilter selects one pod's containers, or sandboxes, in the runtime.
func PodFilter(uid string) map[string]string { return map[string]string{cri.LabelPodUID: uid} }
