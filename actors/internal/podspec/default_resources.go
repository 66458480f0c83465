package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri/translate"
)

// roundUp lifts every quantity to a whole number of milli units, the finest the API keeps.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// requestsFromLimits reserves what may be used wherever the manifest does not say how much to reserve.
func requestsFromLimits(r *v1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	addMissing(r.Requests, r.Limits, func(v1.ResourceName) bool { return true })
}

// defaultPodResources completes spec.resources where the manifest gave a part of it (KEP-2837): limits of huge pages
// from what the containers may use, then requests from what the containers reserve, then from the pod's own limits.
func defaultPodResources(spec *v1.PodSpec) {
	r := spec.Resources
	if r == nil || (len(r.Limits) == 0 && len(r.Requests) == 0) {
		return
	}
	limits := v1.ResourceList{}
	addMissing(limits, r.Limits, func(v1.ResourceName) bool { return true })
	addMissing(limits, containersNeed(spec, limitsOf), func(name v1.ResourceName) bool {
		_, requested := r.Requests[name]
		return isHugePages(name) && !requested
	})
	if len(limits) == 0 {
		return
	}
	r.Limits = limits
	requests := v1.ResourceList{}
	addMissing(requests, r.Requests, func(v1.ResourceName) bool { return true })
	addMissing(requests, containersNeed(spec, requestsOf), func(name v1.ResourceName) bool {
		return isPodLevelResource(name) && !isHugePages(name)
	})
	addMissing(requests, limits, isPodLevelResource)
	if len(requests) > 0 {
		r.Requests = requests
	}
}

func limitsOf(c *v1.Container) v1.ResourceList   { return c.Resources.Limits }
func requestsOf(c *v1.Container) v1.ResourceList { return c.Resources.Requests }

// containersNeed adds up what the containers of spec need at their greatest: either all regular containers and all
// sidecars together, or one init container and the sidecars started before it (KEP-753).
func containersNeed(spec *v1.PodSpec, list func(*v1.Container) v1.ResourceList) v1.ResourceList {
	sidecars, peak := v1.ResourceList{}, v1.ResourceList{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if translate.RestartsAlways(c) {
			add(sidecars, list(c))
			continue
		}
		during := sidecars.DeepCopy()
		add(during, list(c))
		keepGreater(peak, during)
	}
	for i := range spec.Containers {
		add(sidecars, list(&spec.Containers[i]))
	}
	keepGreater(peak, sidecars)
	return peak
}

func add(sum, more v1.ResourceList) {
	for name, quantity := range more {
		total := sum[name].DeepCopy()
		total.Add(quantity)
		sum[name] = total
	}
}

func keepGreater(peak, other v1.ResourceList) {
	for name, quantity := range other {
		if have, ok := peak[name]; !ok || quantity.Cmp(have) > 0 {
			peak[name] = quantity.DeepCopy()
		}
	}
}

// addMissing copies the entries of from that are wanted and that into lacks.
func addMissing(into, from v1.ResourceList, wanted func(v1.ResourceName) bool) {
	for name, quantity := range from {
		if _, ok := into[name]; !ok && wanted(name) {
			into[name] = quantity.DeepCopy()
		}
	}
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isPodLevelResource tells which resources spec.resources may hold.
func isPodLevelResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || isHugePages(name)
}
