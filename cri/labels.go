package cri

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// What the kubelet writes on sandboxes and containers. crictl, log shippers,
// cAdvisor and the next kubelet on this node read it, so none of it may change.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash                     = "io.kubernetes.container.hash"         // hexadecimal, no prefix
	AnnotationRestartCount             = "io.kubernetes.container.restartCount" // decimal
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler" // v1.LifecycleHandler in JSON
	AnnotationPorts                    = "io.kubernetes.container.ports"          // []v1.ContainerPort in JSON
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"  // seconds
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// What this agent adds to its containers. A kubelet that takes over ignores it.
const (
	// AnnotationSpecHash is SpecHash of the container.
	AnnotationSpecHash = "playlet.dev/spec-hash"
	// AnnotationBackoff is the step of the container's back-off, which so
	// survives the agent. Its text belongs to the container's actor.
	AnnotationBackoff = "playlet.dev/backoff"
	// AnnotationImageVolumes are the IDs of the images that it mounts as
	// volumes, with spaces between them: no list of the runtime has them.
	AnnotationImageVolumes = "playlet.dev/image-volumes"
	// AnnotationRound is how often all containers of its pod had been restarted
	// together (KEP-5532) when the container was made, in decimal: those with a
	// lower number than the pod's are ended and made again. It is there where
	// the pod has a rule for that.
	AnnotationRound = "playlet.dev/round"
	// AnnotationResources is the container's spec.resources in JSON, as it was
	// created with: no hash has them.
	AnnotationResources = "playlet.dev/resources"
	// AnnotationPodResources is the pod's spec.resources at that time, in JSON:
	// a container without limits of its own has the pod's.
	AnnotationPodResources = "playlet.dev/pod-resources"
)

// AnnotationRootDir is what this agent adds to sandboxes and containers: its root folder, which says whose they are where
// agents share a runtime.
const AnnotationRootDir = "playlet.dev/root-dir"

// ours leaves out what another agent made.
func ours[T interface{ GetAnnotations() map[string]string }](c *Client, all []T) []T {
	if c.opts.Foreign == nil {
		return all
	}
	return slices.DeleteFunc(all, func(one T) bool {
		root := one.GetAnnotations()[AnnotationRootDir]
		return root != "" && c.opts.Foreign(root)
	})
}

// noteForeign keeps which pods are another agent's, as a list of all sandboxes says it.
func (c *Client) noteForeign(all []*runtimeapi.PodSandbox) {
	found := map[string]string{}
	for _, one := range all {
		if root := one.GetAnnotations()[AnnotationRootDir]; root != "" && c.opts.Foreign != nil && c.opts.Foreign(root) {
			found[plainUID(one.GetLabels()[LabelPodUID])] = root
		}
	}
	c.foreign.Store(&found)
}

// ForeignPod says whether a pod is another agent's, as the last list of all sandboxes said it; before the first one, all may be.
// The UID may be as systemd's cgroups write it.
func (c *Client) ForeignPod(uid string) bool {
	found := c.foreign.Load()
	return found == nil || (*found)[plainUID(uid)] != ""
}

// ForeignRoot is the root folder of the agent whose pod it is; empty where it is no other agent's, as far as is known.
func (c *Client) ForeignRoot(uid string) string {
	if found := c.foreign.Load(); found != nil {
		return (*found)[plainUID(uid)]
	}
	return ""
}

func plainUID(uid string) string { return strings.ReplaceAll(uid, "_", "-") }

// AnnotationPodStarted is what this agent adds to sandboxes: the pod's start
// time (RFC 3339), which so survives the agent and the pod's first sandbox.
const AnnotationPodStarted = "playlet.dev/pod-started"

// What a runtime keeps with a sandbox or container comes back in each of its lists, and a list of more than 16 MiB fails as a
// whole (maxMessageSize). An API object may have 256 KiB of annotations, and hooks and ports that are bigger yet.
const (
	maxEntry   = 8 << 10  // bytes of one label or annotation: its key and its value
	maxEntries = 32 << 10 // of all labels, or of all annotations, together
)

// bounded is labels or annotations without those that are too big. Where all together are too big, the biggest are left out,
// those last that say where the pod came from. Nobody who looks at a sandbox or container needs what is left out: a hook in
// an annotation serves only who does not know the pod any more.
func bounded(all map[string]string) map[string]string {
	out, sum := make(map[string]string, len(all)+3), 0 // the caller adds some
	for key, value := range all {
		if size := len(key) + len(value); size <= maxEntry {
			out[key] = value
			sum += size
		}
	}
	if sum <= maxEntries {
		return out
	}
	origin := func(key string) int {
		if strings.HasPrefix(key, "kubernetes.io/config.") {
			return 1
		}
		return 0
	}
	keys := slices.SortedFunc(maps.Keys(out), func(a, b string) int {
		return cmp.Or(origin(a)-origin(b), len(b)+len(out[b])-len(a)-len(out[a]), cmp.Compare(a, b))
	})
	for _, key := range keys {
		if sum <= maxEntries {
			break
		}
		sum -= len(key) + len(out[key])
		delete(out, key)
	}
	return out
}

// sandboxLabels is the pod's own labels and, above them, its identity.
func sandboxLabels(pod *v1.Pod) map[string]string {
	labels := bounded(pod.Labels)
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
	return labels
}

// containerLabels is identity alone: the pod's labels are on its sandbox.
func containerLabels(pod *v1.Pod, container *v1.Container) map[string]string {
	return map[string]string{
		LabelPodName:       pod.Name,
		LabelPodNamespace:  pod.Namespace,
		LabelPodUID:        string(pod.UID),
		LabelContainerName: container.Name,
	}
}

// containerAnnotations is what is needed to end the container rightly and to
// report it when its pod is no longer known. extra (of device plugins, the
// back-off step) gives way to the kubelet's keys.
func containerAnnotations(
	pod *v1.Pod, container *v1.Container, restartCount uint32, extra map[string]string,
) (map[string]string, error) {
	a := map[string]string{}
	a[AnnotationHash] = strconv.FormatUint(KubeletHash(container), 16)
	a[AnnotationRestartCount] = strconv.FormatUint(uint64(restartCount), 10)
	a[AnnotationTerminationMessagePath] = container.TerminationMessagePath
	a[AnnotationTerminationMessagePolicy] = string(container.TerminationMessagePolicy)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[AnnotationDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[AnnotationTerminationGracePeriod] = strconv.FormatInt(*s, 10)
	}
	asJSON := map[string]any{}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		asJSON[AnnotationPreStopHandler] = container.Lifecycle.PreStop
	}
	if len(container.Ports) > 0 {
		asJSON[AnnotationPorts] = container.Ports
	}
	for key, value := range asJSON {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		a[key] = string(text)
	}
	hash, err := SpecHash(container)
	if err != nil {
		return nil, err
	}
	a[AnnotationSpecHash] = hash
	out := bounded(extra)
	maps.Copy(out, bounded(a))
	return out, nil
}

// CarryMade adds to the annotations of a container what it is made with: the inverse of MadeWith.
func CarryMade(annotations map[string]string, pod *v1.Pod, container *v1.Container) error {
	own := ptr.Deref(pod.Spec.Resources, v1.ResourceRequirements{}) // said of none, too: earlier releases say nothing
	for key, r := range map[string]*v1.ResourceRequirements{
		AnnotationResources: &container.Resources, AnnotationPodResources: &own,
	} {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		annotations[key] = string(text)
	}
	return nil
}

// MadeWith are the resources that a container and its pod had when it was made, by the annotations of the container; nil for what
// it does not carry, and empty for a pod that had none of its own.
func MadeWith(annotations map[string]string) (container, pod *v1.ResourceRequirements) {
	return Annotated[v1.ResourceRequirements](annotations, AnnotationResources),
		Annotated[v1.ResourceRequirements](annotations, AnnotationPodResources)
}

// Annotated is what an annotation of a container holds in JSON. It is nil where there is none, or none that can be read: anybody
// may have written it.
func Annotated[T any](annotations map[string]string, key string) *T {
	out := new(T)
	if text, ok := annotations[key]; !ok || json.Unmarshal([]byte(text), out) != nil {
		return nil
	}
	return out
}
