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

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
)

// table holds the pods of one node. It is pure: no clock, no I/O.
type table struct {
	node string
	pods map[types.NamespacedName]*entry
	// order has the entries of pods, the oldest first. It is maintained, since the change of one pod must not cost a sort of
	// all.
	order []*entry
}

// entry is one pod. Both objects are immutable.
type entry struct {
	served *v1.Pod // as the API server has it, without managedFields
	wanted *v1.Pod // as sent to the pods actor; nil for a pod that must not run
}

func newTable(node string) *table {
	return &table{node: node, pods: map[types.NamespacedName]*entry{}}
}

// put records one pod. It must not change afterwards, and the table does not change it: a watch may share its objects.
func (t *table) put(pod *v1.Pod, now time.Time) {
	if pod.ManagedFields != nil {
		light := *pod
		light.ManagedFields = nil
		pod = &light
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if pod.Spec.NodeName != t.node {
		t.drop(key)
		return
	}
	e := &entry{served: pod, wanted: wantedOf(pod, t.pods[key], now)}
	if was := t.pods[key]; was != nil && was.compare(e) == 0 {
		t.order[t.place(was)] = e
	} else {
		t.drop(key)
		t.order = slices.Insert(t.order, t.place(e), e)
	}
	t.pods[key] = e
}

// drop removes one pod.
func (t *table) drop(key types.NamespacedName) {
	if e := t.pods[key]; e != nil {
		i := t.place(e)
		t.order = slices.Delete(t.order, i, i+1)
		delete(t.pods, key)
	}
}

// place returns an entry's position in the order, or the one at which to insert it.
func (t *table) place(e *entry) int {
	i, _ := slices.BinarySearchFunc(t.order, e, (*entry).compare)
	return i
}

// compare orders pods by age, then by their unique names.
func (e *entry) compare(o *entry) int {
	p, q := e.served, o.served
	return cmp.Or(p.CreationTimestamp.Compare(q.CreationTimestamp.Time),
		cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
}

func (t *table) remove(pod *v1.Pod) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if was := t.pods[key]; was != nil && was.served.UID == pod.UID {
		t.drop(key)
	}
}

// replace records a complete list.
func (t *table) replace(pods []*v1.Pod, now time.Time) {
	there := make(map[types.NamespacedName]bool, len(pods))
	for _, p := range pods {
		there[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = true
		t.put(p, now)
	}
	for key := range t.pods {
		if !there[key] {
			t.drop(key)
		}
	}
}

// wantedOf returns the desired pod of an object. It is nil for a mirror pod, which represents a static pod. If nothing
// changed that the agent uses, it is the earlier object. Otherwise it is a copy with the kubelet's annotations.
func wantedOf(pod *v1.Pod, was *entry, now time.Time) *v1.Pod {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror || messages.CheckUID(string(pod.UID)) != nil {
		return nil
	}
	seen := now.Format(time.RFC3339Nano)
	if was != nil && was.wanted != nil && was.served.UID == pod.UID {
		if sameDesired(was.wanted, was.served, pod) {
			return was.wanted
		}
		seen = was.wanted.Annotations[manifest.FirstSeenAnnotation]
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[objectset.SourceAnnotation], out.Annotations[manifest.FirstSeenAnnotation] = objectset.APISource, seen
	return &out
}

// sameDesired reports whether only the bookkeeping of the API server and this agent changed: the resource version, and the
// status without the parts that other clients decide.
func sameDesired(wanted, was, now *v1.Pod) bool {
	x, y := *was, *now
	x.ResourceVersion, y.ResourceVersion = "", ""
	x.Status, y.Status = v1.PodStatus{}, v1.PodStatus{}
	return finalPhase(&wanted.Status) == finalPhase(&now.Status) &&
		equality.Semantic.DeepEqual(wanted.Status.ResourceClaimStatuses, now.Status.ResourceClaimStatuses) &&
		equality.Semantic.DeepEqual(wanted.Status.ExtendedResourceClaimStatus, now.Status.ExtendedResourceClaimStatus) &&
		sameGates(now.Spec.ReadinessGates, &wanted.Status, &now.Status) &&
		equality.Semantic.DeepEqual(&x, &y)
}

// finalPhase returns the phase of a pod that has ended, and "" before.
func finalPhase(s *v1.PodStatus) v1.PodPhase {
	if finalstatus.Final(s.Phase) {
		return s.Phase
	}
	return ""
}

// sameGates reports whether the conditions of the readiness gates are the same.
func sameGates(gates []v1.PodReadinessGate, a, b *v1.PodStatus) bool {
	for _, g := range gates {
		if conditionStatus(a, g.ConditionType) != conditionStatus(b, g.ConditionType) {
			return false
		}
	}
	return true
}

// conditionStatus returns the status of a condition, or "" if it is absent.
func conditionStatus(s *v1.PodStatus, t v1.PodConditionType) v1.ConditionStatus {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return s.Conditions[i].Status
		}
	}
	return ""
}

// lists returns all served pods and the desired ones, the oldest first, and the problems of the others.
func (t *table) lists() (served, wanted []*v1.Pod, problems []string) {
	uids := make(map[types.UID]bool, len(t.order))
	served, wanted = make([]*v1.Pod, 0, len(t.order)), make([]*v1.Pod, 0, len(t.order))
	for _, e := range t.order {
		served = append(served, e.served)
		if e.wanted != nil && !uids[e.wanted.UID] {
			uids[e.wanted.UID] = true
			wanted = append(wanted, e.wanted)
		}
		if err := messages.CheckUID(string(e.served.UID)); err != nil {
			problems = append(problems, fmt.Sprintf("pod %s/%s is not run, because of its UID: %v",
				e.served.Namespace, e.served.Name, err))
		}
	}
	return served, wanted, problems
}
