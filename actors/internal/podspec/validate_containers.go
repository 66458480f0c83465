package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/playlet-dev/playlet/cri/translate"
)

func (v *validator) containers(spec *field.Path) {
	if len(v.spec.Containers) == 0 {
		v.required(spec.Child("containers"), "a pod needs at least one container")
	}
	names := map[string]bool{}
	hostPorts := map[string]bool{}
	regular := spec.Child("containers")
	for i := range v.spec.Containers {
		c, at := &v.spec.Containers[i], regular.Index(i)
		v.container(c, at)
		v.unique(at.Child("name"), names, c.Name)
		v.hostPorts(c.Ports, at.Child("ports"), hostPorts)
		v.lifecycle(c.Lifecycle, at.Child("lifecycle"))
		v.probes(c, at)
		v.containerRestartPolicy(c, at)
	}
	for i := range v.spec.InitContainers {
		c, at := &v.spec.InitContainers[i], spec.Child("initContainers").Index(i)
		v.container(c, at)
		v.unique(at.Child("name"), names, c.Name)
		v.initContainer(c, at)
	}
}

// container checks what all kinds of containers have in common.
func (v *validator) container(c *v1.Container, at *field.Path) {
	v.label(at.Child("name"), c.Name)
	v.image(c.Image, at.Child("image"))
	oneOf(&v.checker, at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(&v.checker, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	v.ports(c.Ports, at.Child("ports"))
	v.env(c.Env, at.Child("env"))
	v.envFrom(c.EnvFrom, at.Child("envFrom"))
	v.volumeMounts(c, at.Child("volumeMounts"))
	v.resources(&c.Resources, at.Child("resources"))
	v.resizePolicy(c.ResizePolicy, at.Child("resizePolicy"))
	v.containerSecurity(c.SecurityContext, at.Child("securityContext"))
}

func (v *validator) image(image string, at *field.Path) {
	switch {
	case image == "":
		v.required(at, "")
	case strings.TrimSpace(image) != image:
		v.invalid(at, image, "must have no space before or after it")
	}
}

func (v *validator) initContainer(c *v1.Container, at *field.Path) {
	v.containerRestartPolicy(c, at)
	// One init container at a time has its ports, so that they need be different only within it.
	v.hostPorts(c.Ports, at.Child("ports"), map[string]bool{})
	if translate.RestartsAlways(c) {
		v.lifecycle(c.Lifecycle, at.Child("lifecycle"))
		v.probes(c, at)
		return
	}
	const why = "an init container may have it only with restartPolicy Always"
	if c.Lifecycle != nil {
		v.forbidden(at.Child("lifecycle"), why)
	}
	probes := probesOf(c)
	for _, name := range sortedKeys(probes) {
		if probes[name] != nil {
			v.forbidden(at.Child(name), why)
		}
	}
	for i, policy := range c.ResizePolicy {
		if policy.RestartPolicy == v1.RestartContainer {
			v.invalid(at.Child("resizePolicy").Index(i).Child("restartPolicy"), policy.RestartPolicy, why)
		}
	}
}
