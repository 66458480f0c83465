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
	// partial reports that the walk of its volumes and logs is unfinished: the pod uses at least as much.
	partial bool
	old     bool // the figures of its volumes and logs are from a walk before the requested one
}

// evictable reports whether a pod may be evicted. Critical pods may not. For the kubelet static pods are critical, since nothing
// starts them elsewhere; with static, their priority decides, as for other pods.
func evictable(pod *v1.Pod, static bool) bool {
	if static && translate.IsStatic(pod) {
		return !translate.HasCriticalPriority(pod)
	}
	return !translate.IsCritical(pod)
}

// rank sorts the pods by the documented rules of node-pressure eviction, the first to evict first. Pods above their request come
// first, then lower priorities, then larger excesses over the request. Inodes and process IDs have no requests; for process IDs,
// priority decides first. The name is last, to make the order deterministic.
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

// uses returns the pod's use of a resource: bytes, inodes or processes. For a disk, only data on that file system counts.
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
	var layers, logs, files int64
	for i := range c.stats.Containers {
		layers += used(c.stats.Containers[i].Rootfs, what)
		logs += used(c.stats.Containers[i].Logs, what)
	}
	for i := range c.stats.VolumeStats {
		if v := &c.stats.VolumeStats[i]; c.local(v.Name) {
			files += used(&v.FsStats, what)
		}
	}
	// The rest of the pod's usage is data that the agent keeps for it: its logs, termination logs, /etc/hosts.
	files = max(files, used(c.stats.EphemeralStorage, what)-layers-logs)
	var sum int64
	if on.layers {
		sum += layers
	}
	if on.logs {
		sum += logs
	}
	if on.files {
		sum += files
	}
	return sum
}

// unmeasured reports whether the pod's volumes and logs were not walked yet: its use of a disk is unknown. A pod without a
// running container has figures only once that has begun.
func (c candidate) unmeasured() bool {
	return len(c.stats.VolumeStats) == 0 && len(c.stats.Containers) > 0 &&
		!slices.ContainsFunc(c.stats.Containers, func(s api.ContainerStats) bool { return s.Logs != nil })
}

// freesNothing reports whether the end of the pod is known to free nothing of a resource: it has no running container, e.g. since
// it is in back-off, and no data. A running pod may use more later.
func (c candidate) freesNothing(s Signal, on contents) bool {
	return len(c.stats.Containers) == 0 && c.uses(signals[s].resource, on) == 0 &&
		(!c.partial || s.kind() != v1.NodeDiskPressure)
}

// local reports whether the volume of this name is on the node's disk and removed with the pod.
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

// used returns the use of a disk, in bytes or inodes.
func used(fs *api.FsStats, what v1.ResourceName) int64 {
	switch {
	case fs == nil:
		return 0
	case what == resourceInodes:
		return int64(ptr.Deref(fs.InodesUsed, 0)) //nolint:gosec // inodes of a disk
	}
	return int64(ptr.Deref(fs.UsedBytes, 0)) //nolint:gosec // bytes of a disk
}

// The annotations of an eviction's Event, as with the kubelet: names and uses are comma-separated lists.
const (
	starvedAnnotation         = "starved_resource"
	containersAnnotation      = "offending_containers"
	containersUsageAnnotation = "offending_containers_usage"
	podAnnotation             = "offending_pod"
	podUsageAnnotation        = "offending_pod_usage"
)

// explain returns the message of an evicted pod's status, in the kubelet's words. It names the short resource and the users
// above their request: the pod as a whole if it has requests of its own (KEP-2837), and its containers, including init
// containers. The annotations have the same for programs.
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

// podRequest returns the pod-level memory request, if any.
func podRequest(pod *v1.Pod, what v1.ResourceName) (request resource.Quantity, ok bool) {
	if own := pod.Spec.Resources; own != nil && what == v1.ResourceMemory {
		request, ok = own.Requests[what]
	}
	return request, ok
}

// containerUse returns a container's use of memory or disks; 0 if there are no figures per container.
func containerUse(s *api.ContainerStats, what v1.ResourceName) int64 {
	switch what {
	case v1.ResourceMemory:
		return workingSet(s.Memory)
	case v1.ResourceEphemeralStorage:
		return used(s.Rootfs, what) + used(s.Logs, what)
	}
	return 0
}

// inKibibytes formats bytes as whole KiB; counts stay as they are.
func inKibibytes(n int64, format resource.Format) string {
	if format == resource.BinarySI {
		n = n >> 10 << 10
	}
	return resource.NewQuantity(n, format).String()
}

// hardGrace is the grace period of a pod evicted at once, in seconds; the kubelet's.
const hardGrace = 1

// grace returns the grace period of the pod's containers, in seconds. For a soft threshold it is the pod's own, bounded by most
// (evictionMaxPodGracePeriod), if that is not negative.
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

// failure returns the failure of an evicted pod.
func failure(message string, grace *int64) messages.PodFailure {
	return messages.PodFailure{Reason: messages.EventEvicted, Message: message, Disruption: message, Grace: grace}
}
