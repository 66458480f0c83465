package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Submission is the content of a submitted manifest.
type Submission struct {
	// Documents have the Pods, and the pods made of templates, as their authors wrote them.
	Documents []Document
	// Pods are made from Documents, in the same order. They are meaningless if there are problems.
	Pods []*v1.Pod
	// Objects are the ConfigMaps and Secrets.
	Objects Objects
}

// LoadSubmission reads a submitted manifest. Besides Pods it may have ConfigMaps and Secrets, and Deployments, DaemonSets,
// StatefulSets, ReplicaSets and Jobs. The pod of the latter is made from the template, with the object's name. Callers must not
// use any part of a manifest with problems.
func LoadSubmission(path string, data []byte, opts Options) (s Submission, problems []Problem) {
	chunks, problems := documentsOf(path, data)
	seen := map[string]bool{}
	for _, c := range chunks {
		if isObject(c.data) {
			object, found := loadObject(path, c)
			s.Objects.ConfigMaps = append(s.Objects.ConfigMaps, object.ConfigMaps...)
			s.Objects.Secrets = append(s.Objects.Secrets, object.Secrets...)
			problems = append(problems, found...)
			continue
		}
		for _, d := range decodeChunk(path, c, true) {
			one := d.load(opts, seen)
			if one.Pod != nil {
				s.Pods = append(s.Pods, one.Pod)
			}
			s.Documents = append(s.Documents, d)
			problems = append(problems, one.Problems...)
		}
	}
	return s, limited(problems)
}

// isObject reports whether a document is a ConfigMap or a Secret. Its faults must not quote it.
func isObject(data []byte) bool {
	text, faults, _ := toJSON(data)
	if len(faults) > 0 {
		return false
	}
	h, _ := readHead(text, "")
	return h.Kind == "ConfigMap" || h.Kind == "Secret"
}

// templated has the kinds with a pod's template, and the template's path. restartPolicy follows the API server's rules: a Job's
// must not be Always.
var templated = map[string]struct {
	version string
	empty   func() (object any, meta *metav1.ObjectMeta, template *v1.PodTemplateSpec)
}{
	"Deployment": {"apps/v1", func() (any, *metav1.ObjectMeta, *v1.PodTemplateSpec) {
		o := &appsv1.Deployment{}
		return o, &o.ObjectMeta, &o.Spec.Template
	}},
	"DaemonSet": {"apps/v1", func() (any, *metav1.ObjectMeta, *v1.PodTemplateSpec) {
		o := &appsv1.DaemonSet{}
		return o, &o.ObjectMeta, &o.Spec.Template
	}},
	"StatefulSet": {"apps/v1", func() (any, *metav1.ObjectMeta, *v1.PodTemplateSpec) {
		o := &appsv1.StatefulSet{}
		return o, &o.ObjectMeta, &o.Spec.Template
	}},
	"ReplicaSet": {"apps/v1", func() (any, *metav1.ObjectMeta, *v1.PodTemplateSpec) {
		o := &appsv1.ReplicaSet{}
		return o, &o.ObjectMeta, &o.Spec.Template
	}},
	"Job": {"batch/v1", func() (any, *metav1.ObjectMeta, *v1.PodTemplateSpec) {
		o := &batchv1.Job{}
		return o, &o.ObjectMeta, &o.Spec.Template
	}},
}

const templatePrefix = "spec.template."

// decodeTemplated returns a document with the pod of an object's template.
func (d Document) decodeTemplated(text []byte, kind string) Document {
	d.namespace, d.name = readName(text)
	object, meta, template := templated[kind].empty()
	faults, passedOver := unmarshal(text, object, d.prefix)
	if len(faults) > 0 {
		return d.broken(faults...)
	}
	d.warn(passedOver)
	d.outer, d.prefix = d.prefix, d.prefix+templatePrefix
	pod := &v1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: template.Spec}
	pod.Name, pod.Namespace, pod.GenerateName = meta.Name, meta.Namespace, ""
	policy := pod.Spec.RestartPolicy
	switch {
	case kind == "Job" && policy != v1.RestartPolicyNever && policy != v1.RestartPolicyOnFailure:
		return d.broken(fault{field: d.prefix + "spec.restartPolicy", message: "must be Never or OnFailure in a Job"})
	case kind != "Job" && policy != "" && policy != v1.RestartPolicyAlways:
		return d.broken(fault{field: d.prefix + "spec.restartPolicy", message: "must be Always in a " + kind})
	}
	d.Pod, d.Note = pod, noteOf(kind, text)
	return d
}

// noteOf lists the fields of the object that are used.
func noteOf(kind string, text []byte) string {
	var o struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	_ = json.Unmarshal(text, &o) // it was decoded before
	note := kind + ": one pod is run, of its spec.template"
	if kind == "Job" {
		note += ", whose restartPolicy says what follows a failure"
	}
	var idle []string
	for _, name := range slices.Sorted(maps.Keys(o.Spec)) {
		switch name {
		case "template":
		case "replicas", "parallelism", "completions":
			idle = append(idle, fmt.Sprintf("%s (%s)", name, o.Spec[name]))
		default:
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		note += "; without effect here: " + strings.Join(idle, ", ")
	}
	return note
}
