package objectset

import (
	"iter"
	"slices"

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

// SourceAnnotation names a pod's source, as the kubelet does. Sources set it, and overwrite an author's value.
const SourceAnnotation = "kubernetes.io/config.source"

// APISource is the value of SourceAnnotation for pods of the API server.
const APISource = "api"

// OfAPIServer reports whether the pod came from the API server, and so may read its objects. All others are static.
func OfAPIServer(pod *v1.Pod) bool { return pod.Annotations[SourceAnnotation] == APISource }

// Refs yields the ConfigMaps and Secrets that a pod names, in volumes, environments and pull secrets; duplicates are
// possible. It skips unsupported kinds of volumes.
func Refs(pod *v1.Pod) iter.Seq[Ref] {
	var out []Ref
	add := func(kind Kind, name string) {
		if name != "" {
			out = append(out, Ref{kind, pod.Namespace, name})
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.ConfigMap != nil:
			add(ConfigMap, v.ConfigMap.Name)
		case v.Secret != nil:
			add(Secret, v.Secret.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					add(ConfigMap, s.ConfigMap.Name)
				}
				if s.Secret != nil {
					add(Secret, s.Secret.Name)
				}
			}
		}
	}
	environment := func(env []v1.EnvVar, from []v1.EnvFromSource) {
		for _, f := range from {
			if f.ConfigMapRef != nil {
				add(ConfigMap, f.ConfigMapRef.Name)
			}
			if f.SecretRef != nil {
				add(Secret, f.SecretRef.Name)
			}
		}
		for _, e := range env {
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				add(ConfigMap, e.ValueFrom.ConfigMapKeyRef.Name)
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				add(Secret, e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		environment(c.Env, c.EnvFrom)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		environment(c.Env, c.EnvFrom)
	}
	for _, ref := range pod.Spec.ImagePullSecrets {
		add(Secret, ref.Name)
	}
	return slices.Values(out)
}
