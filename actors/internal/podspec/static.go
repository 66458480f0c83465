package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/playlet-dev/playlet/actors/internal/admission"
)

// ObjectSources describes the sources of objects that static pods of a node may refer to.
type ObjectSources struct {
	// Objects is set if the node has ConfigMaps, Secrets and RuntimeClasses of its own.
	Objects bool
	// Cluster is set if there is an API server, whose RuntimeClasses they may use.
	Cluster bool
}

// ValidateStatic rejects fields that are invalid in a pod from a file, a URL or a submission: references to objects of the API,
// and scheduling gates. The kubelet rejects the same (for objects by its feature gate PreventStaticPodAPIReferences, on since
// Kubernetes 1.34), as such a pod could read objects that its author may not. Objects of the node itself are permitted. The
// kubelet's list has no RuntimeClass: with an API server it reads the class there, and without one it ignores the field. The pod
// must be defaulted.
func ValidateStatic(pod *v1.Pod, has ObjectSources) field.ErrorList {
	s := &staticChecker{objects: has.Objects, cluster: has.Cluster}
	spec := field.NewPath("spec")
	if pod.Spec.ServiceAccountName != "" {
		s.refuse(spec.Child("serviceAccountName"), "service accounts")
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		s.refuse(spec.Child("resourceClaims"), "resource claims")
	}
	if len(pod.Spec.SchedulingGates) > 0 { // the API server rejects such a mirror pod, so the pod would be invisible there
		s.forbidden(spec.Child("schedulingGates"), "a static pod cannot have any: it is on its node already")
	}
	if pod.Spec.RuntimeClassName != nil && !has.Objects && !has.Cluster {
		s.refuse(spec.Child("runtimeClassName"), runtimeClasses)
	}
	if len(pod.Spec.ImagePullSecrets) > 0 && !has.Objects {
		s.refuse(spec.Child("imagePullSecrets"), "secrets")
	}
	for c, at := range Containers(&pod.Spec, spec) {
		s.container(c, at)
	}
	for i := range pod.Spec.Volumes {
		s.volume(&pod.Spec.Volumes[i].VolumeSource, spec.Child("volumes").Index(i))
	}
	if len(pod.Spec.EphemeralContainers) > 0 {
		s.forbidden(spec.Child("ephemeralContainers"), "can only be added through the API server")
	}
	return s.errs
}

// StaticWarnings finds fields of a static pod that a kubelet accepts although they can only do harm.
func StaticWarnings(pod *v1.Pod) field.ErrorList {
	if len(pod.Spec.ReadinessGates) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "readinessGates"),
		"a static pod with readiness gates never becomes ready: nothing sets its conditions")}
}

type staticChecker struct {
	checker
	objects bool // the node has ConfigMaps and Secrets
	cluster bool // there is an API server
}

const (
	configMaps     = "config maps"
	secrets        = "secrets"
	runtimeClasses = "runtime classes"
	csiDrivers     = "CSI drivers"
)

// ofTheAPI maps the union fields that refer to objects of the API to the kind of these objects.
var ofTheAPI = map[string]string{
	"configMap": configMaps, "configMapRef": configMaps, "configMapKeyRef": configMaps,
	"secret": secrets, "secretRef": secrets, "secretKeyRef": secrets,
	"csi": csiDrivers, "persistentVolumeClaim": "claims", "ephemeral": "claims",
	// Plugins that were moved to CSI.
	"awsElasticBlockStore": csiDrivers, "azureDisk": csiDrivers, "azureFile": csiDrivers, "cinder": csiDrivers,
	"gcePersistentDisk": csiDrivers, "portworxVolume": csiDrivers, "vsphereVolume": csiDrivers,
	"serviceAccountToken": "service accounts", "clusterTrustBundle": "trust bundles", "podCertificate": "certificates",
}

// union rejects the chosen field of a union if it refers to an object that the node does not have.
func (s *staticChecker) union(union any, at *field.Path) {
	for _, name := range given(union) {
		objects, named := ofTheAPI[name]
		if named && (!s.objects || objects != configMaps && objects != secrets) {
			s.refuse(at.Child(name), objects)
		}
	}
}

func (s *staticChecker) refuse(at *field.Path, objects string) {
	why := "there is no API server to ask"
	if s.cluster {
		why = "only a pod of the API server can, as its author's rights are checked there"
	}
	if objects == configMaps || objects == secrets || objects == runtimeClasses {
		why += ", and no folder of them (--object-dir)"
	}
	s.forbidden(at, "a static pod cannot refer to "+objects+": "+why)
}

func (s *staticChecker) container(c *v1.Container, at *field.Path) {
	s.counted(c.Resources.Limits, at.Child("resources", "limits"))
	s.counted(c.Resources.Requests, at.Child("resources", "requests"))
	for i := range c.EnvFrom {
		s.union(c.EnvFrom[i], at.Child("envFrom").Index(i))
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			s.union(*from, at.Child("env").Index(i).Child("valueFrom"))
		}
	}
}

// counted rejects resources that neither a device plugin nor an operator can provide: Kubernetes reserves their names. Extended
// resources are admission's: the pod waits for the device plugin.
func (s *staticChecker) counted(list v1.ResourceList, at *field.Path) {
	for _, name := range sortedKeys(list) {
		if strings.Contains(string(name), "/") && !admission.Extended(name) {
			s.forbidden(at.Key(string(name)), notYet)
		}
	}
}

func (s *staticChecker) volume(source *v1.VolumeSource, at *field.Path) {
	s.union(*source, at)
	if source.Projected == nil {
		return
	}
	for i := range source.Projected.Sources {
		s.union(source.Projected.Sources[i], at.Child("projected", "sources").Index(i))
	}
}
