package admission

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Preempts reports whether pod may replace other: only pod is critical, or it has the higher priority.
func Preempts(pod, other *v1.Pod) bool {
	if Critical(pod) && !Critical(other) {
		return true
	}
	a, b := pod.Spec.Priority, other.Spec.Priority
	return a != nil && b != nil && *a > *b
}

// Victims returns the pods to end so that a critical pod fits, or false if all candidates would not suffice. As in the
// kubelet, it spares Guaranteed pods first, then Burstable ones. Within a class it prefers the pods that cover the lack best,
// and among equals those with smaller requests.
func Victims(pod *v1.Pod, others []*Claim, shortages []Shortage) ([]*Claim, bool) {
	classes := map[v1.PodQOSClass][]*Claim{}
	var all []*Claim
	for _, other := range others {
		if Preempts(pod, other.Pod) {
			class := translate.QOSClass(other.Pod)
			classes[class], all = append(classes[class], other), append(all, other)
		}
	}
	if len(less(shortages, all)) > 0 {
		return nil, false
	}
	best, burst := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable]
	guaranteed := cover(classes[v1.PodQOSGuaranteed], less(shortages, best, burst))
	burst = cover(burst, less(shortages, best, guaranteed))
	best = cover(best, less(shortages, burst, guaranteed))
	return slices.Concat(best, burst, guaranteed), true
}

// cover chooses pods until nothing is lacking. They are known to suffice.
func cover(pods []*Claim, shortages []Shortage) []*Claim {
	pods = slices.Clone(pods)
	var out []*Claim
	for len(shortages) > 0 && len(pods) > 0 {
		best := 0
		for i := range pods {
			d, least := distance(pods[i], shortages), distance(pods[best], shortages)
			if d < least || d == least && smaller(pods[i], pods[best]) {
				best = i
			}
		}
		out = append(out, pods[best])
		shortages = less(shortages, pods[best:best+1])
		pods = slices.Delete(pods, best, best+1)
	}
	return out
}

// distance is how far from enough one pod's end is: for each resource the square of the part that would still be lacking.
func distance(pod *Claim, shortages []Shortage) float64 {
	sum := 0.0
	for _, l := range shortages {
		if left := float64(l.Amount - pod.holds(l.Name)); left > 0 {
			sum += math.Pow(left/float64(l.Amount), 2)
		}
	}
	return sum
}

// less returns the shortages that remain without the pods in gone.
func less(shortages []Shortage, gone ...[]*Claim) []Shortage {
	var out []Shortage
	for _, l := range shortages {
		for _, pod := range slices.Concat(gone...) {
			l.Amount -= pod.holds(l.Name)
		}
		if l.Amount > 0 {
			out = append(out, l)
		}
	}
	return out
}

func smaller(a, b *Claim) bool {
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if x, y := a.holds(name), b.holds(name); x != y {
			return x < y
		}
	}
	return false
}

// holds returns the amount of a resource that the end of the pod frees.
func (c *Claim) holds(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return c.requests[name]
}
