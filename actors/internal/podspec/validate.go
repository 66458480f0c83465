package podspec

import (
	"math"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/playlet-dev/playlet/messages"
)

// validator checks one pod. What several fields are checked against is looked up once.
type validator struct {
	checker
	pod     *v1.Pod
	spec    *v1.PodSpec
	volumes map[string]*v1.Volume
}

// Validate finds everything in a defaulted pod that the API server would refuse when the pod is created, with the
// feature gates that are on by default in Kubernetes 1.37. It does not change the pod.
//
// Two rules are stricter: the address of a host port must be one, as no node can run such a pod as it says, and a UID must
// be fit for an element of a path, as the API server makes them itself and files do not. Where the API
// server blames a whole list or struct, the item or field is named. What [ValidateStatic] and
// [Unsupported] refuse whatever it says is not looked at.
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
	v.names(spec)
	return v.errs
}

func (v *validator) metadata(at *field.Path) {
	v.add(apivalidation.ValidateObjectMeta(&v.pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, at)...)
	if uid := string(v.pod.UID); uid != "" {
		if err := messages.CheckUID(uid); err != nil {
			v.invalid(at.Child("uid"), uid, err.Error())
		}
	}
	annotations := at.Child("annotations")
	if _, mirror := v.pod.Annotations[v1.MirrorPodAnnotationKey]; mirror && v.spec.NodeName == "" {
		v.invalid(annotations.Key(v1.MirrorPodAnnotationKey), v.pod.Annotations[v1.MirrorPodAnnotationKey],
			"a mirror pod needs spec.nodeName")
	}
	v.deletionCost(annotations)
	v.appArmorAnnotations(annotations)
	v.seccompAnnotations(annotations)
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

// names checks the references to other objects that nothing else depends on.
func (v *validator) names(spec *field.Path) {
	optional := func(child, value string) {
		if value != "" {
			v.subdomain(spec.Child(child), value)
		}
	}
	optional("serviceAccountName", v.spec.ServiceAccountName)
	optional("nodeName", v.spec.NodeName)
	optional("priorityClassName", v.spec.PriorityClassName)
	if v.spec.RuntimeClassName != nil {
		v.subdomain(spec.Child("runtimeClassName"), *v.spec.RuntimeClassName)
	}
	for i, gate := range v.spec.ReadinessGates {
		v.name(spec.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType),
			validation.IsQualifiedName)
	}
}
