package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/messages"
)

// Annotations and the value by which the kubelet marks, on its own copy, a pod of the API server.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	seenAnnotation   = "kubernetes.io/config.seen"
	apiSource        = "api"
)

// book is what is known of the pods of one node. It is pure: no clock, no I/O.
type book struct {
	node string
	pods map[types.NamespacedName]*entry
	// order has the entries of pods, the oldest first: it is kept, since a change of one pod among many must not cost their sorting.
	order []*entry
}

// entry is one pod. Both objects are immutable.
type entry struct {
	served *v1.Pod // as the API server has it, but for managedFields
	wanted *v1.Pod // as pods is told of it; nil for one that is not to be run
}

func newBook(node string) *book {
	return &book{node: node, pods: map[types.NamespacedName]*entry{}}
}

// put takes one pod, which nobody changes from then on, the book neither: a watch may share what it gives.
func (b *book) put(pod *v1.Pod, now time.Time) {
	if pod.ManagedFields != nil {
		light := *pod
		light.ManagedFields = nil
		pod = &light
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.NodeName != b.node {
		b.drop(key)
		return
	}
	e := &entry{served: pod, wanted: wantedOf(pod, b.pods[key], now)}
	if was := b.pods[key]; was != nil && was.compare(e) == 0 {
		b.order[b.place(was)] = e
	} else {
		b.drop(key)
		b.order = slices.Insert(b.order, b.place(e), e)
	}
	b.pods[key] = e
}

// drop forgets one pod.
func (b *book) drop(key types.NamespacedName) {
	if e := b.pods[key]; e != nil {
		i := b.place(e)
		b.order = slices.Delete(b.order, i, i+1)
		delete(b.pods, key)
	}
}

// place is where in the order an entry is, or would be.
func (b *book) place(e *entry) int {
	i, _ := slices.BinarySearchFunc(b.order, e, (*entry).compare)
	return i
}

// compare is the order of pods: by age, and by name, of which there is one each.
func (e *entry) compare(o *entry) int {
	p, q := e.served, o.served
	return cmp.Or(p.CreationTimestamp.Compare(q.CreationTimestamp.Time), cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
}

func (b *book) remove(pod *v1.Pod) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if was := b.pods[key]; was != nil && was.served.UID == pod.UID {
		b.drop(key)
	}
}

// replace takes a whole list.
func (b *book) replace(pods []*v1.Pod, now time.Time) {
	there := make(map[types.NamespacedName]bool, len(pods))
	for _, p := range pods {
		there[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = true
		b.put(p, now)
	}
	for key := range b.pods {
		if !there[key] {
			b.drop(key)
		}
	}
}

// wantedOf is the pod as it is wanted here: nil for a mirror pod, which stands for a static one; the object of before
// where nothing changed that anyone here goes by; else a copy with the marks that the kubelet gives its own.
func wantedOf(pod *v1.Pod, was *entry, now time.Time) *v1.Pod {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror || messages.CheckUID(string(pod.UID)) != nil {
		return nil
	}
	seen := now.Format(time.RFC3339Nano)
	if was != nil && was.wanted != nil && was.served.UID == pod.UID {
		if sameWish(was.wanted, was.served, pod) {
			return was.wanted
		}
		seen = was.wanted.Annotations[seenAnnotation]
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[sourceAnnotation], out.Annotations[seenAnnotation] = apiSource, seen
	return &out
}

// sameWish says that nothing changed but what the API server and this agent keep account of: the resource version, and the
// status without what somebody else decides in it.
func sameWish(wanted, was, now *v1.Pod) bool {
	x, y := *was, *now
	x.ResourceVersion, y.ResourceVersion = "", ""
	x.Status, y.Status = v1.PodStatus{}, v1.PodStatus{}
	return finalPhase(&wanted.Status) == finalPhase(&now.Status) && sameGates(now.Spec.ReadinessGates, &wanted.Status, &now.Status) &&
		equality.Semantic.DeepEqual(&x, &y)
}

// finalPhase is the phase of a pod that is over, and empty before.
func finalPhase(s *v1.PodStatus) v1.PodPhase {
	if s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed {
		return s.Phase
	}
	return ""
}

// sameGates says that the conditions that the readiness gates name are the same.
func sameGates(gates []v1.PodReadinessGate, a, b *v1.PodStatus) bool {
	for _, g := range gates {
		if gate(a, g.ConditionType) != gate(b, g.ConditionType) {
			return false
		}
	}
	return true
}

// gate is the status of a condition, empty where it is not there.
func gate(s *v1.PodStatus, t v1.PodConditionType) v1.ConditionStatus {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return s.Conditions[i].Status
		}
	}
	return ""
}

// lists are all pods that are served and those that are wanted, the oldest first, and what is wrong with others.
func (b *book) lists() (served, wanted []*v1.Pod, problems []string) {
	uids := make(map[types.UID]bool, len(b.order))
	served, wanted = make([]*v1.Pod, 0, len(b.order)), make([]*v1.Pod, 0, len(b.order))
	for _, e := range b.order {
		served = append(served, e.served)
		if e.wanted != nil && !uids[e.wanted.UID] {
			uids[e.wanted.UID] = true
			wanted = append(wanted, e.wanted)
		}
		if err := messages.CheckUID(string(e.served.UID)); err != nil {
			problems = append(problems, fmt.Sprintf("pod %s/%s is not run, because of its UID: %v", e.served.Namespace, e.served.Name, err))
		}
	}
	return served, wanted, problems
}
