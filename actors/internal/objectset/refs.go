package objectset

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// Kind is a kind of object that pods refer to.
type Kind string

// The kinds.
const (
	ConfigMap Kind = "ConfigMap"
	Secret    Kind = "Secret"
)

// Ref names one object of the API server.
type Ref struct {
	Kind            Kind
	Namespace, Name string
}

func (r Ref) String() string { return string(r.Kind) + " " + r.Namespace + "/" + r.Name }

// SourceAnnotation says where a pod came from, as the kubelet writes it. The sources of pods set it, whatever the author of
// a pod wrote there.
const SourceAnnotation = "kubernetes.io/config.source"

// APISource is what SourceAnnotation says of the API server's pods.
const APISource = "api"

// OfAPIServer says whether the pod came from the API server, and reads the API server's objects. All others are static, and
// may read none of these.
func OfAPIServer(pod *v1.Pod) bool { return pod.Annotations[SourceAnnotation] == APISource }

// Refs are the ConfigMaps and Secrets that a pod names, in volumes, environments and pull secrets; one that is named twice
// comes twice. What only some kinds of volumes that are not supported name is not among them.
func Refs(pod *v1.Pod) iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		n := namer{namespace: pod.Namespace, yield: yield}
		for i := range pod.Spec.Volumes {
			n.volume(&pod.Spec.Volumes[i])
		}
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				n.environment(list[i].Env, list[i].EnvFrom)
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			n.environment(pod.Spec.EphemeralContainers[i].Env, pod.Spec.EphemeralContainers[i].EnvFrom)
		}
		for _, ref := range pod.Spec.ImagePullSecrets {
			n.name(Secret, ref.Name)
		}
	}
}

type namer struct {
	namespace string
	yield     func(Ref) bool
	ended     bool
}

func (n *namer) name(kind Kind, name string) {
	if name != "" && !n.ended {
		n.ended = !n.yield(Ref{kind, n.namespace, name})
	}
}

func (n *namer) volume(v *v1.Volume) {
	switch {
	case v.ConfigMap != nil:
		n.name(ConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		n.name(Secret, v.Secret.SecretName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				n.name(ConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				n.name(Secret, s.Secret.Name)
			}
		}
	}
}

func (n *namer) environment(env []v1.EnvVar, from []v1.EnvFromSource) {
	for _, f := range from {
		if f.ConfigMapRef != nil {
			n.name(ConfigMap, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			n.name(Secret, f.SecretRef.Name)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			n.name(ConfigMap, ref.Name)
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			n.name(Secret, ref.Name)
		}
	}
}
