package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/threshold"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// candidate is a pod that may be evicted, with its figures.
type candidate struct {
	pod   *v1.Pod
	stats *api.PodStats
	// partial reports that the walk of its volumes and logs has not come to its end: the pod uses at least as much.
	partial bool
	old     bool // the figures of its volumes and logs are from a walk before the requested one
}

// evictable says whether a pod may be evicted at all. A critical one may not. Static pods count as critical with the kubelet,
// since nothing starts them elsewhere; static says that they are judged by their priority, as any other pod.
func evictable(pod *v1.Pod, static bool) bool {
	if static && translate.IsStatic(pod) {
		return !translate.HasCriticalPriority(pod)
	}
	return !translate.IsCritical(pod)
}

// rank puts the pod to evict first to the front, by the rules that Kubernetes documents for node-pressure eviction: pods that use
// more than they requested come before others, those of lower priority before those of higher, and those that exceed their
// request by more before those that exceed it by less. Nothing is requested of inodes and process IDs; of the latter priority
// counts first. By name at last, so that the order does not depend on chance.
func rank(s Signal, on contents, list []candidate) {
	what := signals[s].resource
	excess := func(c candidate) int64 { return c.excess(what, on) }
	above := func(c candidate) int {
		if what == resourcePIDs || excess(c) <= 0 {
			return 1
		}
		return 0
	}
	slices.SortFunc(list, func(x, y candidate) int {
		return cmp.Or(
			cmp.Compare(above(x), above(y)),
			cmp.Compare(ptr.Deref(x.pod.Spec.Priority, 0), ptr.Deref(y.pod.Spec.Priority, 0)),
			cmp.Compare(excess(y), excess(x)),
			strings.Compare(x.pod.Namespace, y.pod.Namespace), strings.Compare(x.pod.Name, y.pod.Name),
		)
	})
}

// excess returns the use of a resource above the pod's request.
func (c candidate) excess(what v1.ResourceName, on contents) int64 {
	request := translate.PodRequests(c.pod)[what]
	return c.uses(what, on) - request.Value()
}

// uses is what the pod uses of a resource: bytes, inodes or processes. Of a disk only what lies on the file system counts.
func (c candidate) uses(what v1.ResourceName, on contents) int64 {
	switch what {
	case v1.ResourceMemory:
		return workingSet(c.stats.Memory)
	case resourcePIDs:
		if c.stats.ProcessStats == nil {
			return 0
		}
		return int64(ptr.Deref(c.stats.ProcessStats.ProcessCount, 0)) //nolint:gosec // a count of processes
	}
	var layers, files int64
	for i := range c.stats.Containers {
		layers += used(c.stats.Containers[i].Rootfs, what)
		files += used(c.stats.Containers[i].Logs, what)
	}
	for i := range c.stats.VolumeStats {
		if v := &c.stats.VolumeStats[i]; c.local(v.Name) {
			files += used(&v.FsStats, what)
		}
	}
	// The rest of what the whole pod uses is what the agent keeps for it: logs of its own, termination logs, /etc/hosts.
	files = max(files, used(c.stats.EphemeralStorage, what)-layers)
	var sum int64
	if on.layers {
		sum += layers
	}
	if on.files {
		sum += files
	}
	return sum
}

// unmeasured says that the pod's volumes and logs were not walked yet: what it uses of a disk is not known.
func (c candidate) unmeasured() bool {
	return len(c.stats.VolumeStats) == 0 &&
		!slices.ContainsFunc(c.stats.Containers, func(s api.ContainerStats) bool { return s.Logs != nil })
}

// local says that the volume of this name lies on the node's disk, and goes with the pod.
func (c candidate) local(name string) bool {
	return slices.ContainsFunc(c.pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Name == name && (v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil)
	})
}

func workingSet(m *api.MemoryStats) int64 {
	if m == nil {
		return 0
	}
	return int64(ptr.Deref(m.WorkingSetBytes, 0)) //nolint:gosec // bytes of memory
}

// used is what is used of a disk, in bytes or inodes.
func used(fs *api.FsStats, what v1.ResourceName) int64 {
	switch {
	case fs == nil:
		return 0
	case what == resourceInodes:
		return int64(ptr.Deref(fs.InodesUsed, 0)) //nolint:gosec // inodes of a disk
	}
	return int64(ptr.Deref(fs.UsedBytes, 0)) //nolint:gosec // bytes of a disk
}

// The annotations of the Event of an eviction, as the kubelet has them: names and uses are lists, separated by commas.
const (
	starvedAnnotation         = "starved_resource"
	containersAnnotation      = "offending_containers"
	containersUsageAnnotation = "offending_containers_usage"
	podAnnotation             = "offending_pod"
	podUsageAnnotation        = "offending_pod_usage"
)

// explain is the message of an evicted pod's status, in the kubelet's words: what was short, and what used more than it
// requested, the pod as a whole where it has requests of its own (KEP-2837), and its containers, init containers among them. The
// annotations have the same for programs.
func explain(l limit, r Reading, c candidate) (text string, annotations map[string]string) {
	what := signals[l.signal].resource
	format := resource.BinarySI
	if what == resourceInodes || what == resourcePIDs {
		format = resource.DecimalSI
	}
	at := threshold.Quantity(l.text, r.Capacity)
	text = fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ", what,
		inKibibytes(at.Value(), format), inKibibytes(r.Available, format))
	annotations = map[string]string{starvedAnnotation: string(what)}
	say := func(kind, name string, usage int64, request resource.Quantity) string {
		uses := resource.NewQuantity(usage, format).String()
		text += fmt.Sprintf("%s %s was using %s, request is %s, has larger consumption of %s. ", kind, name, uses,
			request.String(), what)
		return uses
	}
	if request, ok := podRequest(c.pod, what); ok && request.CmpInt64(workingSet(c.stats.Memory)) < 0 {
		annotations[podAnnotation] = c.pod.Name
		annotations[podUsageAnnotation] = say("Pod", c.pod.Name, workingSet(c.stats.Memory), request)
	}
	var names, uses []string
	for i := range c.stats.Containers {
		s := &c.stats.Containers[i]
		usage := containerUse(s, what)
		for _, spec := range slices.Concat(c.pod.Spec.Containers, c.pod.Spec.InitContainers) {
			if request := spec.Resources.Requests[what]; spec.Name == s.Name && request.CmpInt64(usage) < 0 {
				names, uses = append(names, s.Name), append(uses, say("Container", s.Name, usage, request))
			}
		}
	}
	annotations[containersAnnotation], annotations[containersUsageAnnotation] = strings.Join(names, ","), strings.Join(uses, ",")
	return text, annotations
}

// podRequest is what the pod as a whole asks for of memory, where it does.
func podRequest(pod *v1.Pod, what v1.ResourceName) (request resource.Quantity, ok bool) {
	if own := pod.Spec.Resources; own != nil && what == v1.ResourceMemory {
		request, ok = own.Requests[what]
	}
	return request, ok
}

// containerUse is what a container uses of memory or of disks; of what is not counted by container it is none.
func containerUse(s *api.ContainerStats, what v1.ResourceName) int64 {
	switch what {
	case v1.ResourceMemory:
		return workingSet(s.Memory)
	case v1.ResourceEphemeralStorage:
		return used(s.Rootfs, what) + used(s.Logs, what)
	}
	return 0
}

// inKibibytes shows bytes without what is less than a KiB; counts stay as they are.
func inKibibytes(n int64, format resource.Format) string {
	if format == resource.BinarySI {
		n = n >> 10 << 10
	}
	return resource.NewQuantity(n, format).String()
}

// hardGrace is what containers of a pod have that is evicted at once, in seconds; the kubelet's.
const hardGrace = 1

// grace is what the pod's containers have to end, in seconds: of a soft threshold as much as the pod asks for, and at most most
// (evictionMaxPodGracePeriod), which is no limit where it is negative.
func grace(l limit, pod *v1.Pod, most int32) *int64 {
	if l.hard() {
		return ptr.To[int64](hardGrace)
	}
	own := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30)
	if most >= 0 {
		own = min(own, int64(most))
	}
	return ptr.To(max(own, hardGrace))
}

// failure is how a pod is evicted.
func failure(message string, grace *int64) messages.PodFailure {
	return messages.PodFailure{Reason: messages.EventEvicted, Message: message, Disruption: message, Grace: grace}
}
