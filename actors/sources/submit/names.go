package submit

import (
	"cmp"
	"iter"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/wholefile"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// StaticName returns the pod's name on a node for its name in the manifest; see manifest.StaticName.
var StaticName = manifest.StaticName

// NameInManifest is the inverse of StaticName; see manifest.NameInManifest.
var NameInManifest = manifest.NameInManifest

// Batches splits a manifest between its documents; see manifest.Batches.
var Batches = manifest.Batches

// Batch is a part of a manifest.
type Batch = manifest.Batch

// WithoutUnsupported omits documents that a node does not run; see manifest.WithoutUnsupported.
var WithoutUnsupported = manifest.WithoutUnsupported

// SkippedDocument is an omitted document.
type SkippedDocument = manifest.SkippedDocument

// Name is the kind (empty: a Pod), namespace and name of one pod or object in a manifest.
type Name struct{ Kind, Namespace, Name string }

// Names lists the pods, ConfigMaps and Secrets of a manifest for a withdrawal. Only their names need to be valid. Documents
// without a name are problems.
func Names(path string, data []byte) ([]Name, []messages.ManifestProblem) {
	var names []Name
	var problems []messages.ManifestProblem
	s, _ := manifest.LoadSubmission(path, data, manifest.Options{}) // only errors of form matter
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

// staticFile returns the file with the manifest of a pod of the file source, or "".
func (j *journal) staticFile(pod *v1.Pod) string {
	for path, data := range manifestsIn(j.opts.StaticPath) {
		for _, d := range manifest.Decode(path, data) {
			if d.Pod != nil && manifest.StaticName(d.Pod.Name, j.opts.Node.NodeName) == pod.Name &&
				cmp.Or(d.Pod.Namespace, metav1.NamespaceDefault) == pod.Namespace {
				return path
			}
		}
	}
	return ""
}

// manifestsIn reads the files of a folder, or the one file. It skips unreadable files; the file source reports them.
func manifestsIn(path string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		paths := []string{path}
		if entries, err := os.ReadDir(path); err == nil {
			paths = nil
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".") {
					paths = append(paths, filepath.Join(path, e.Name()))
				}
			}
		}
		for _, p := range paths {
			real, err := filepath.EvalSymlinks(p)
			if err != nil {
				continue
			}
			if data, err := (wholefile.Reading{Insist: true}).Read(real); err == nil && !yield(p, data) {
				return
			}
		}
	}
}
