package podspec

import (
	_ "crypto/sha256" // the digests in image names are checked against the linked algorithms
	_ "crypto/sha512"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Default sets the missing fields of a pod to the API server's defaults for a v1 Pod, in place. Volumes of kinds that
// [Unsupported] rejects are not changed. It is idempotent and leaves wrong values for [Validate] to report. It changes two kinds
// of given values, as the API server does: quantities finer than a milli unit are rounded up, and a negative grace period becomes
// 1 s.
func Default(pod *v1.Pod) {
	spec := &pod.Spec
	syncServiceAccount(spec)
	syncAppArmorAnnotations(pod)
	for i := range spec.InitContainers {
		requestsFromLimits(&spec.InitContainers[i].Resources)
	}
	for i := range spec.Containers {
		requestsFromLimits(&spec.Containers[i].Resources)
	}
	defaultPodResources(pod)
	defaultSpec(spec)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for c := range Containers(spec) {
		defaultContainer(c)
	}
	if spec.HostNetwork {
		hostPortsFromContainerPorts(spec.InitContainers)
		hostPortsFromContainerPorts(spec.Containers)
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

func defaultSpec(spec *v1.PodSpec) {
	setDefault(&spec.DNSPolicy, v1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, v1.RestartPolicyAlways)
	setDefault(&spec.SchedulerName, v1.DefaultSchedulerName)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &v1.PodSecurityContext{}
	}
	setPointer(&spec.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	if *spec.TerminationGracePeriodSeconds < 0 {
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	setPointer(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
}

// syncServiceAccount makes serviceAccount equal to serviceAccountName, as the API server does: the old name only counts if the
// new one is missing, and the stored pod has both.
func syncServiceAccount(spec *v1.PodSpec) {
	setDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

// hostPortsFromContainerPorts sets missing host ports: on the host's network a container port is a host port.
func hostPortsFromContainerPorts(containers []v1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			port := &containers[i].Ports[j]
			setDefault(&port.HostPort, port.ContainerPort)
		}
	}
}

// setDefault sets *field if it is the zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setPointer sets *field to a pointer to value if it is nil.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultContainer(c *v1.Container) {
	setDefault(&c.ImagePullPolicy, pullPolicyFor(c.Image))
	setDefault(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for i := range c.Env {
		defaultEnvSource(c.Env[i].ValueFrom)
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if c.Lifecycle == nil {
		return
	}
	for _, hook := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if hook != nil {
			defaultHTTPGet(hook.HTTPGet)
		}
	}
}

// pullPolicyFor returns Always for an image with the tag latest, explicit or implied. A digest is immutable, and other tags are
// assumed to be. An invalid name is reported elsewhere.
func pullPolicyFor(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func defaultEnvSource(source *v1.EnvVarSource) {
	if source == nil {
		return
	}
	defaultFieldRef(source.FieldRef)
	if source.FileKeyRef != nil {
		setPointer(&source.FileKeyRef.Optional, false)
	}
}

func defaultFieldRef(ref *v1.ObjectFieldSelector) {
	if ref != nil {
		setDefault(&ref.APIVersion, "v1")
	}
}

func defaultProbe(probe *v1.Probe) {
	if probe == nil {
		return
	}
	setDefault(&probe.TimeoutSeconds, 1)
	setDefault(&probe.PeriodSeconds, 10)
	setDefault(&probe.SuccessThreshold, 1)
	setDefault(&probe.FailureThreshold, 3)
	defaultHTTPGet(probe.HTTPGet)
	if probe.GRPC != nil {
		setPointer(&probe.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *v1.HTTPGetAction) {
	if get == nil {
		return
	}
	setDefault(&get.Path, "/")
	setDefault(&get.Scheme, v1.URISchemeHTTP)
}

// roundUp rounds every quantity up to a whole number of milli units, the finest in the API.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// requestsFromLimits sets missing requests to the limits.
func requestsFromLimits(r *v1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	addMissing(r.Requests, r.Limits, anyResource)
}

// defaultPodResources completes a given spec.resources (KEP-2837): limits of huge pages from the containers' limits, then
// requests from the containers' requests, then from the pod's own limits.
func defaultPodResources(pod *v1.Pod) {
	r := pod.Spec.Resources
	if r == nil || (len(r.Limits) == 0 && len(r.Requests) == 0) {
		return
	}
	limits := v1.ResourceList{}
	addMissing(limits, r.Limits, anyResource)
	addMissing(limits, containerLimits(pod), func(name v1.ResourceName) bool {
		_, requested := r.Requests[name]
		return isHugePages(name) && !requested
	})
	if len(limits) == 0 {
		return
	}
	r.Limits = limits
	requests := v1.ResourceList{}
	addMissing(requests, r.Requests, anyResource)
	addMissing(requests, containerRequests(pod), func(name v1.ResourceName) bool {
		return resourcehelper.IsSupportedPodLevelResource(name) && !isHugePages(name)
	})
	addMissing(requests, limits, resourcehelper.IsSupportedPodLevelResource)
	if len(requests) > 0 {
		r.Requests = requests
	}
}

// containerRequests and containerLimits return the maximum needs of the containers (KEP-753).
func containerRequests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
}

func containerLimits(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
}

func anyResource(v1.ResourceName) bool { return true }

// addMissing copies the selected entries of from that are missing in into.
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

// tokenLifetime is the default lifetime of a projected service account token, in seconds.
const tokenLifetime = 60 * 60

func defaultVolume(source *v1.VolumeSource) {
	if *source == (v1.VolumeSource{}) {
		source.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if source.HostPath != nil {
		setPointer(&source.HostPath.Type, v1.HostPathUnset)
	}
	if source.Image != nil {
		setDefault(&source.Image.PullPolicy, pullPolicyFor(source.Image.Reference))
	}
	if source.Secret != nil {
		setPointer(&source.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if source.ConfigMap != nil {
		setPointer(&source.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if source.DownwardAPI != nil {
		setPointer(&source.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardFiles(source.DownwardAPI.Items)
	}
	if source.Projected == nil {
		return
	}
	setPointer(&source.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
	for i := range source.Projected.Sources {
		source := &source.Projected.Sources[i]
		if source.DownwardAPI != nil {
			defaultDownwardFiles(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			setPointer(&source.ServiceAccountToken.ExpirationSeconds, tokenLifetime)
		}
	}
}

func defaultDownwardFiles(files []v1.DownwardAPIVolumeFile) {
	for i := range files {
		defaultFieldRef(files[i].FieldRef)
	}
}
