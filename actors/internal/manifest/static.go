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

// Annotations by which the kubelet, and all that reads its pods, knows where a pod came from.
const (
	SourceAnnotation    = "kubernetes.io/config.source"
	FirstSeenAnnotation = "kubernetes.io/config.seen"
	HashAnnotation      = "kubernetes.io/config.hash"
)

// Sources, as the kubelet writes them into SourceAnnotation.
const (
	FileSource = "file"
	HTTPSource = "http"
	// SubmitSource is not the kubelet's: the pod was submitted on the admin socket.
	SubmitSource = "submit"
)

// Options say for which node, on whose behalf and when a manifest is read.
type Options struct {
	// NodeName is appended to the name of each pod, in lower case, and becomes its spec.nodeName. Where it cannot be the
	// name of a node, no pod is right.
	NodeName string
	// Source is FileSource, HTTPSource, SubmitSource, or a name of its own, which is treated as HTTPSource is.
	Source string
	// Has is what the node has that a pod may refer to.
	Has Has
	// Now becomes the time at which the pod was first seen.
	Now time.Time
}

// Has is what a node has that static pods may refer to.
type Has = podspec.Has

// Static makes of pod, as its author wrote it, the pod that runs on this node without an API server: a new object, in
// whose name the node's is, with a UID that is the same for the same manifest, node and path, with the annotations of
// its origin, the toleration that keeps a pod of a file, or a submitted one, when the node has problems, and phase Pending.
// A status that the manifest gives is dropped. It is what the kubelet does to static pods. pod is not changed; what comes out is
// not defaulted.
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

// StaticName is the name on a node of the static pod that its manifest calls name, as with the kubelet.
func StaticName(name, node string) string { return name + "-" + strings.ToLower(node) }

// NameInManifest is the inverse of StaticName: what the pod's manifest calls it; "" where the node's name is not in the pod's.
func NameInManifest(pod *v1.Pod) string {
	name, ok := strings.CutSuffix(pod.Name, StaticName("", pod.Spec.NodeName))
	if !ok || pod.Spec.NodeName == "" {
		return ""
	}
	return name
}

// tolerateNoExecute lets the pod stay whatever befalls the node. A toleration of the same taints that the manifest has,
// with a time limit, gives way to it.
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

// uidOf hashes what a pod says when its defaults are filled in, so that comments, the order of fields and defaults that
// are spelt out make no other pod of it, and where it is from.
func uidOf(pod *v1.Pod, path string, opts Options) types.UID {
	defaulted := pod.DeepCopy()
	podspec.Default(defaulted)
	origin := "url:" + path
	switch opts.Source {
	case FileSource:
		origin = "host:" + opts.NodeName + "file:" + path
	case SubmitSource: // wherever it was sent from
		origin = "host:" + opts.NodeName + "submit:"
	}
	return hashPod(defaulted, origin)
}

// Same says whether two pods that Load made say the same, but for the time at which each was seen first.
func Same(a, b *v1.Pod) bool {
	x, y := *a, *b
	x.Annotations, y.Annotations = maps.Clone(a.Annotations), maps.Clone(b.Annotations)
	delete(x.Annotations, FirstSeenAnnotation)
	delete(y.Annotations, FirstSeenAnnotation)
	return equality.Semantic.DeepEqual(&x, &y)
}
