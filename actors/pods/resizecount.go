package pods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// countRequested counts what a new version of a pod asks to change of containers that can be resized.
func countRequested(was, now *v1.Pod) {
	had := allocationOf(was).Containers
	for i, list := range lists(now) {
		for k := range list {
			c := &list[k]
			before, there := had[c.Name]
			sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
			if regular := i == 1; !there || !regular && !sidecar {
				continue
			}
			for _, name := range translate.ComputeResources {
				for of, list := range map[string][2]v1.ResourceList{
					"requests": {before.Requests, c.Resources.Requests}, "limits": {before.Limits, c.Resources.Limits},
				} {
					if operation := operationOf(list[0][name], list[1][name]); operation != "" {
						metrics.RequestedResizes.WithLabelValues(string(name), of, operation).Inc()
					}
				}
			}
		}
	}
}

// operationOf is the kubelet's word for the change of a quantity; empty where there is none.
func operationOf(was, now resource.Quantity) string {
	switch by := now.Cmp(was); {
	case by == 0:
		return ""
	case now.IsZero():
		return "remove"
	case was.IsZero():
		return "add"
	case by < 0:
		return "decrease"
	}
	return "increase"
}

// triggerOf is the kubelet's word for what had the resizes that wait looked at again.
func triggerOf(msg any) string {
	switch msg.(type) {
	case messages.SourcePodsWanted: // a pod asks for less, be it the one that waits or another
		return "pod_updated"
	case messages.PodStatusChanged:
		return "pod_terminated"
	case messages.PodEnded, messages.ChildStopped:
		return "pods_removed"
	}
	return "periodic_retry"
}
