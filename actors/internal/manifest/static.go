package manifest

import (
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// Annotations with the origin of a pod, for the kubelet and the readers of its pods.
const (
	SourceAnnotation    = "kubernetes.io/config.source"
	FirstSeenAnnotation = "kubernetes.io/config.seen"
	HashAnnotation      = "kubernetes.io/config.hash"
)

// Sources, as the kubelet writes them into SourceAnnotation.
const (
	FileSource = "file"
	HTTPSource = "http"
	// SubmitSource marks a pod that was submitted on the admin socket. The kubelet has no such value.
	SubmitSource = "submit"
)

// Options configures the reading of a manifest.
type Options struct {
	// NodeName is appended to the name of each pod, in lower case, and becomes its spec.nodeName. No pod is valid
	// with an invalid name.
	NodeName string
	// Source is FileSource, HTTPSource, SubmitSource, or another name, which is treated like HTTPSource.
	Source string
	// Has describes the objects of the node to which a pod may refer.
	Has ObjectSources
	// Now becomes the first-seen time of the pod.
	Now time.Time
}

// ObjectSources describes the objects of a node to which static pods may refer.
type ObjectSources = podspec.ObjectSources

// Static returns the pod that runs on this node without an API server, made from the author's pod as the kubelet does. The
// node's name is appended to its name. Its UID is the same for the same manifest, node and path. It has the annotations of its
// origin, and phase Pending; a status in the manifest is dropped. Pods of files and submissions tolerate problems of the node.
// The result is a new object without defaults.
func Static(pod *v1.Pod, path string, opts Options) *v1.Pod {
	static := pod.DeepCopy()
	if static.UID == "" {
		static.UID = uidOf(pod, path, opts)
	}
	static.Name = StaticName(static.Name, opts.NodeName)
	if static.Namespace == "" {
		static.Namespace = v1.NamespaceDefault
	}
	static.Spec.NodeName = opts.NodeName
	if static.Annotations == nil {
		static.Annotations = map[string]string{}
	}
	static.Annotations[HashAnnotation] = string(static.UID)
	static.Annotations[SourceAnnotation] = opts.Source
	static.Annotations[FirstSeenAnnotation] = opts.Now.Format(time.RFC3339Nano)
	if opts.Source == FileSource || opts.Source == SubmitSource {
		tolerateNoExecute(static)
	}
	static.Status = v1.PodStatus{Phase: v1.PodPending}
	return static
}

// StaticName returns the name on a node of the static pod with this name in its manifest, as in the kubelet.
func StaticName(name, node string) string { return name + "-" + strings.ToLower(node) }

// NameInManifest is the inverse of StaticName: it returns the pod's name in its manifest, or "" if the pod's name lacks the
// node's.
func NameInManifest(pod *v1.Pod) string {
	name, ok := strings.CutSuffix(pod.Name, StaticName("", pod.Spec.NodeName))
	if !ok || pod.Spec.NodeName == "" {
		return ""
	}
	return name
}

// tolerateNoExecute makes the pod tolerate all problems of the node. It replaces a toleration of the same taints with a time
// limit.
func tolerateNoExecute(pod *v1.Pod) {
	always := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].MatchToleration(&always) {
			pod.Spec.Tolerations[i] = always
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, always)
}

// uidOf hashes the defaulted pod and its origin. Comments, the order of fields and explicit defaults therefore do not change the
// UID.
func uidOf(pod *v1.Pod, path string, opts Options) types.UID {
	defaulted := pod.DeepCopy()
	podspec.Default(defaulted)
	origin := "url:" + path
	switch opts.Source {
	case FileSource:
		origin = "host:" + opts.NodeName + "file:" + path
	case SubmitSource: // from any client
		origin = "host:" + opts.NodeName + "submit:"
	}
	return hashPod(defaulted, origin)
}

// Same reports whether two pods of Load are equal except for their first-seen times.
func Same(a, b *v1.Pod) bool {
	x, y := *a, *b
	x.Annotations, y.Annotations = maps.Clone(a.Annotations), maps.Clone(b.Annotations)
	delete(x.Annotations, FirstSeenAnnotation)
	delete(y.Annotations, FirstSeenAnnotation)
	return equality.Semantic.DeepEqual(&x, &y)
}
