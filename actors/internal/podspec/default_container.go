package podspec

import (
	_ "crypto/sha256" // digests in image names are checked against the algorithms that are linked in
	_ "crypto/sha512"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

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

// pullPolicyFor is Always for an image whose tag is latest, said or meant; a digest names its content for ever and any
// other tag is taken to do so. A name that cannot be parsed is reported elsewhere.
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
