package eviction

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/translate"
)

// The kubelet's names of a pod's own limits, for the metric.
const (
	emptyDirLimit  = "emptydirfs.limit"
	podLimit       = "ephemeralpodfs.limit"
	containerLimit = "ephemeralcontainerfs.limit"
)

// bounded reports whether the pod has a limit of local storage. Without a shortage, only such pods need figures.
func bounded(pod *v1.Pod) bool {
	if _, ok := translate.PodLimits(pod)[v1.ResourceEphemeralStorage]; ok {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return sizeLimit(v) != nil })
}

// sizeLimit returns the limit of an emptyDir on the disk; nil: none. One in memory is bounded by its own file system.
func sizeLimit(v v1.Volume) *resource.Quantity {
	e := v.EmptyDir
	if e == nil || e.Medium != v1.StorageMediumDefault || e.SizeLimit == nil || e.SizeLimit.Sign() <= 0 {
		return nil
	}
	return e.SizeLimit
}

// exceeds returns the exceeded limit of local storage, in the kubelet's words; empty: none.
func (c candidate) exceeds() (limit, message string) {
	for _, v := range c.pod.Spec.Volumes {
		size := sizeLimit(v)
		for i := range c.stats.VolumeStats {
			s := &c.stats.VolumeStats[i]
			if size != nil && s.Name == v.Name && size.CmpInt64(used(&s.FsStats, v1.ResourceEphemeralStorage)) < 0 {
				return emptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, size.String())
			}
		}
	}
	if most, ok := translate.PodLimits(c.pod)[v1.ResourceEphemeralStorage]; ok &&
		most.CmpInt64(used(c.stats.EphemeralStorage, v1.ResourceEphemeralStorage)) < 0 {
		return podLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ",
			most.String())
	}
	for i := range c.stats.Containers {
		s := &c.stats.Containers[i]
		for _, spec := range podspec.LongRunning(c.pod) { // the kubelet 1.36 passes over sidecars (kubernetes/kubernetes#138462)
			most, ok := spec.Resources.Limits[v1.ResourceEphemeralStorage]
			usage := used(s.Rootfs, v1.ResourceEphemeralStorage) + used(s.Logs, v1.ResourceEphemeralStorage)
			if ok && spec.Name == s.Name && most.CmpInt64(usage) < 0 {
				return containerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", s.Name,
					most.String())
			}
		}
	}
	return "", ""
}
