package submit

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// StaticName is the name on a node of the pod that its manifest calls name; see manifest.StaticName.
var StaticName = manifest.StaticName

// NameInManifest is the inverse of it; see manifest.NameInManifest.
var NameInManifest = manifest.NameInManifest

// Name is the kind (empty: a Pod), namespace and name of one pod or object of a manifest, as it has them.
type Name struct{ Kind, Namespace, Name string }

// Names lists the pods, ConfigMaps and Secrets of a manifest, for who wants them withdrawn: only their names need to be right.
// Documents that tell no name are problems.
func Names(path string, data []byte) ([]Name, []messages.ManifestProblem) {
	var names []Name
	var problems []messages.ManifestProblem
	s, _ := manifest.LoadSubmission(path, data, manifest.Options{}) // what is wrong beside the form is no matter
	for _, d := range s.Documents {
		problems = append(problems, base.Problems(d.Problems)...)
		switch {
		case d.Pod == nil:
		case d.Pod.Name == "":
			problems = append(problems, messages.ManifestProblem{
				Path: path, Line: d.Line("metadata"), Field: "metadata.name", Message: "it must tell the name of the pod",
			})
		default:
			names = append(names, Name{"", cmp.Or(d.Pod.Namespace, metav1.NamespaceDefault), d.Pod.Name})
		}
	}
	for _, o := range s.Objects.ConfigMaps {
		names = append(names, Name{"ConfigMap", o.Namespace, o.Name})
	}
	for _, o := range s.Objects.Secrets {
		names = append(names, Name{"Secret", o.Namespace, o.Name})
	}
	return names, problems
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	// A UID that no pod can have.
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "-"}
}

// staticFile is the file that has the manifest of a pod of the file source, or empty.
func (j *journal) staticFile(pod *v1.Pod) string {
	paths := []string{j.opts.StaticPath}
	if entries, err := os.ReadDir(j.opts.StaticPath); err == nil {
		paths = nil
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				paths = append(paths, filepath.Join(j.opts.StaticPath, e.Name()))
			}
		}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() > manifest.MaxBytes {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, d := range manifest.Decode(path, data) {
			if d.Pod != nil && manifest.StaticName(d.Pod.Name, j.opts.Node.NodeName) == pod.Name &&
				cmp.Or(d.Pod.Namespace, metav1.NamespaceDefault) == pod.Namespace {
				return path
			}
		}
	}
	return ""
}
