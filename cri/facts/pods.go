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

// Listing holds the items of the CRI's two lists, for one pod or for all.
type Listing struct {
	Sandboxes  []*runtimeapi.PodSandbox
	Containers []*runtimeapi.Container
}

// ByPod splits a listing by pod UID. It leaves out objects without a pod. It keeps malformed objects that name their pod, so that
// reading the pod reports them.
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
		// A container's owner also follows from its sandbox, but a kubelet labels both.
		if o, err := OwnerOf(c.GetLabels()); err == nil {
			p := out[o.UID]
			p.Containers = append(p.Containers, c)
			out[o.UID] = p
		}
	}
	return out
}

// Owner returns the pod of a listing of one pod, or only the UID if the listing is empty.
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

// Light returns the pod's facts from lists alone: see Listed and ListedSandbox for the missing fields. Malformed items are left
// out and described by the error; the facts are valid even with an error.
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

// Sort puts the newest first. Sandboxes are sorted by attempt, which is robust against a clock set back. Containers of different
// names have unrelated attempts, so they are sorted by time.
func Sort(p *messages.PodFacts) {
	slices.SortFunc(p.Sandboxes, func(a, b messages.SandboxFact) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	slices.SortFunc(p.Containers, func(a, b messages.ContainerFact) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Attempt, a.Attempt), strings.Compare(b.ID, a.ID))
	})
}

// PodFilter returns the label selector of one pod's containers or sandboxes.
func PodFilter(uid string) map[string]string { return map[string]string{cri.LabelPodUID: uid} }
