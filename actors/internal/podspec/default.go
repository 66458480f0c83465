package podspec

import (
	v1 "k8s.io/api/core/v1"
)

// Default fills in the fields that pod leaves out with the values the API server gives them in a v1 Pod, in place.
// Volumes of kinds that [Unsupported] refuses stay as they are. It is idempotent and leaves wrong values for [Validate]
// to name. Fields that were set stay as they are, but for two that the API server corrects too: quantities finer than a
// milli unit are rounded up, a negative grace period is 1 s.
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
	defaultPodResources(spec)
	defaultSpec(spec)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for c := range everyContainer(spec) {
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

// syncServiceAccount keeps serviceAccount the mirror of serviceAccountName that the API serves: the old name counts
// only where the new one is absent, and what is read back has both.
func syncServiceAccount(spec *v1.PodSpec) {
	setDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

// hostPortsFromContainerPorts exists because on the host's network a container port is a host port.
func hostPortsFromContainerPorts(containers []v1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			port := &containers[i].Ports[j]
			setDefault(&port.HostPort, port.ContainerPort)
		}
	}
}

// setDefault gives *field the value where it is the zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// setPointer gives *field a pointer to value where it is nil.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
