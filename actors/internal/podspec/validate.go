package podspec

import (
	"math"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/playlet-dev/playlet/messages"
)

// validator checks one pod. It looks up shared values once.
type validator struct {
	checker
	pod     *v1.Pod
	spec    *v1.PodSpec
	volumes map[string]*v1.Volume
}

// Validate finds the errors that the API server would report when a defaulted pod is created, with the feature gates that are on
// by default in Kubernetes 1.37. It does not change the pod. It ignores fields without an effect on a node: those that only a
// scheduler or a controller reads (except the name of a priority class, which would prevent a mirror pod), and the annotations of
// seccomp, which no runtime has received since Kubernetes 1.27.
//
// Two rules are stricter. The address of a host port must be valid, since no node can run such a pod as specified. A UID must be
// valid as an element of a path: the API server generates UIDs, but files may have any. If the API server reports a whole list or
// struct, Validate names the item or field. It ignores fields that [ValidateStatic] and [Unsupported] always reject.
func Validate(pod *v1.Pod) field.ErrorList {
	v := &validator{pod: pod, spec: &pod.Spec, volumes: map[string]*v1.Volume{}}
	v.metadata(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	v.checkVolumes(spec.Child("volumes"))
	v.containers(spec)
	v.podResources(spec.Child("resources"))
	v.lifetime(spec)
	v.podSecurity(spec)
	v.network(spec)
	v.scheduling(spec)
	if v.spec.NodeName != "" {
		v.subdomain(spec.Child("nodeName"), v.spec.NodeName)
	}
	if v.spec.RuntimeClassName != nil {
		v.subdomain(spec.Child("runtimeClassName"), *v.spec.RuntimeClassName)
	}
	if v.spec.PriorityClassName != "" {
		v.subdomain(spec.Child("priorityClassName"), v.spec.PriorityClassName)
	}
	return v.errs
}

func (v *validator) metadata(at *field.Path) {
	v.add(apivalidation.ValidateObjectMeta(&v.pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, at)...)
	if uid := string(v.pod.UID); uid != "" {
		if err := messages.CheckUID(uid); err != nil {
			v.invalid(at.Child("uid"), uid, err.Error())
		}
	}
	v.appArmorAnnotations(at.Child("annotations"))
}

func (v *validator) lifetime(spec *field.Path) {
	oneOf(&v.checker, spec.Child("restartPolicy"), v.spec.RestartPolicy,
		v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if v.spec.TerminationGracePeriodSeconds == nil {
		v.required(spec.Child("terminationGracePeriodSeconds"), "")
	} else {
		v.atLeast(spec.Child("terminationGracePeriodSeconds"), *v.spec.TerminationGracePeriodSeconds, 0)
	}
	if v.spec.OS != nil {
		v.needs(spec.Child("os"), "name", string(v.spec.OS.Name))
	}
	if deadline := v.spec.ActiveDeadlineSeconds; deadline != nil {
		v.between(spec.Child("activeDeadlineSeconds"), *deadline, 1, math.MaxInt32)
	}
}
