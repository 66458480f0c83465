package submit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// StaticName is the name on a node of the pod that its manifest calls name; see manifest.StaticName.
var StaticName = manifest.StaticName

// Name is the namespace and name of one pod of a manifest, as it has them.
type Name struct{ Namespace, Name string }

// Names lists the pods of a manifest, for who wants them withdrawn: only their names need to be right. Documents that
// tell no name are problems.
func Names(path string, data []byte) ([]Name, []messages.ManifestProblem) {
	var names []Name
	var problems []messages.ManifestProblem
	for _, d := range manifest.Decode(path, data) {
		problems = append(problems, base.Problems(d.Problems)...)
		switch {
		case d.Pod == nil:
		case d.Pod.Name == "":
			problems = append(problems, messages.ManifestProblem{
				Path: path, Line: d.Line("metadata"), Field: "metadata.name", Message: "it must tell the name of the pod",
			})
		case d.Pod.Namespace == "":
			names = append(names, Name{metav1.NamespaceDefault, d.Pod.Name})
		default:
			names = append(names, Name{d.Pod.Namespace, d.Pod.Name})
		}
	}
	return names, problems
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	// A UID that no pod can have.
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "-"}
}
