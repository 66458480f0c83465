// Package admission decides whether a pod may run on this node. It is a pure function of the node, the pods that hold its
// resources, and the pod. Its reasons and their order are the kubelet's, since controllers and people read them in statuses.
// The explanations are Playlet's own.
package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// Reasons that a pod is refused for. One for a resource is "OutOf" and the resource's name.
const (
	ReasonEvicted           = "Evicted" // the node is under pressure
	ReasonSysctlForbidden   = "SysctlForbidden"
	ReasonOSLabel           = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS                = "PodOSNotSupported"
	ReasonFeature           = "PodFeatureUnsupported"
	ReasonGroupsPolicy      = "SupplementalGroupsPolicyNotSupported"
	ReasonOutOf             = "OutOf"
	ReasonNodeAffinity      = "NodeAffinity"
	ReasonNodeName          = "NodeName"
	ReasonNodePorts         = "NodePorts"
	ReasonTaintToleration   = "TaintToleration"
	ReasonAppArmor          = "AppArmor"
	ReasonUnexpected        = "UnexpectedAdmissionError" // no room can be made for a critical pod, or no CPUs or devices are free
	linux                   = "linux"                    // the only one that the agent is built for
	rejected                = "Pod was rejected: "
	conditionMessagePattern = "The node had condition: %v. "
)

// Node holds the properties of the node that decide about pods. It is read-only.
type Node struct {
	// Object has the node's name, labels and taints. It is never nil.
	Object *v1.Node
	// Under are the shortages of the latest measurement. The Object's conditions may come from an earlier agent.
	Under []v1.NodeConditionType
	// Allocatable is the node's capacity for pods. "pods" limits their number; without it there is no limit. Resources that
	// it lacks are not available.
	Allocatable v1.ResourceList
	// Partial is true while Allocatable may lack resources of the node. A pod that requests those is admitted.
	Partial bool
	// UnboundRequests turns off the check of machine resources against Allocatable, except for the number of pods.
	UnboundRequests bool
	// Sysctls may be set, besides those that are safe.
	Sysctls Sysctls
	// GroupsPolicy is true if the runtime supports supplementalGroupsPolicy Strict (KEP-3619).
	GroupsPolicy bool
	// AppArmor is true if the kernel enforces it.
	AppArmor bool
	// PodLevelResize is true if pod-level resources can be resized (KEP-5419).
	PodLevelResize bool
	// Undeclared are the features that the node lacks, by the names of KEP-5328. It has none where the node declares none.
	Undeclared []string
	// StaticCPUs is true if containers can have CPUs to themselves [cpuManagerPolicy static].
	StaticCPUs bool
	// ResizeCPUs is true if CPUs of Guaranteed pods can be resized all the same [gate InPlacePodVerticalScalingExclusiveCPUs].
	ResizeCPUs bool
	// StaticMemory and ResizeMemory are the same for memory [memoryManagerPolicy Static, gate
	// InPlacePodVerticalScalingExclusiveMemory].
	StaticMemory, ResizeMemory bool
	// Swap is true if pods get a part of the node's swap (KEP-2400).
	Swap bool
}

// Refusal is why a pod may not run. The zero value is none: it may.
type Refusal struct {
	Reason  string // CamelCase, as the kubelet has it
	Message string // for a person
	Cause   messages.Cause
	// Shortages are the resources to free for the pod, set if nothing else keeps it out.
	Shortages []Shortage
}

// Refused reports whether the pod may not run.
func (r Refusal) Refused() bool { return r.Reason != "" }

// StatusMessage is the message as a refused pod's status has it.
func (r Refusal) StatusMessage() string { return rejected + r.Message }

// OfNode reports whether the refusal depends on the labels or taints of the API server's Node, or on a resource that only the
// Node may have.
func OfNode(r Refusal) bool {
	short := r.Cause.Code == messages.CauseShortage && Extended(v1.ResourceName(r.Cause.Name))
	return r.Reason == ReasonNodeAffinity || r.Reason == ReasonTaintToleration || short
}

// Shortage is the missing amount of a resource, in millicores for cpu, in bytes for memory and storage, else in pieces.
type Shortage struct {
	Name   v1.ResourceName
	Amount int64
}

// Admit decides whether the pod may run beside the pods in the ledger.
func Admit(node *Node, others *Ledger, claim *Claim) Refusal {
	pod := claim.Pod
	for _, check := range []func(*Node, *v1.Pod) Refusal{pressure, sysctls, operatingSystem, groupsPolicy, features} {
		if r := check(node, pod); r.Refused() {
			return r
		}
	}
	if r := general(node, others, claim); r.Refused() {
		return r
	}
	return appArmor(node, pod)
}

// features refuses a new pod that needs a feature which the node does not declare.
func features(node *Node, pod *v1.Pod) Refusal {
	text := node.missing(map[string]bool{restartAll: translate.MayRestartAll(&pod.Spec)})
	if text == "" {
		return Refusal{}
	}
	return Refusal{Reason: ReasonFeature, Message: text}
}

// The features that pods need of a node (KEP-5532, KEP-5419, KEP-1287).
const (
	restartAll     = "RestartAllContainersOnContainerExits"
	podLevelResize = "InPlacePodLevelResourcesVerticalScaling"
	initResize     = "InPlacePodVerticalScalingInitContainers"
)

// MissingForUpdate names the features that an update of a pod needs and that the node does not declare. Empty: none.
func (n *Node) MissingForUpdate(was, now *v1.Pod) string {
	before := map[string]v1.ResourceRequirements{}
	for _, c := range was.Spec.InitContainers {
		before[c.Name] = c.Resources
	}
	return n.missing(map[string]bool{
		podLevelResize: !equality.Semantic.DeepEqual(was.Spec.Resources, now.Spec.Resources),
		initResize: slices.ContainsFunc(now.Spec.InitContainers, func(c v1.Container) bool {
			has, there := before[c.Name]
			return there && !translate.RestartsAlways(&c) && !equality.Semantic.DeepEqual(has, c.Resources)
		}),
	})
}

// missing is the kubelet's message about the needed features that the node does not declare. Empty: there are none.
func (n *Node) missing(needs map[string]bool) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		if needs[name] && slices.Contains(n.Undeclared, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "Pod requires node features that are not available: " + strings.Join(names, ", ")
}

// general are the rules that the scheduler has, too. Of several reasons a resource comes first, unless the pod is critical:
// then it would be made room for.
func general(node *Node, others *Ledger, claim *Claim) Refusal {
	pod, short := claim.Pod, shortages(node, others, claim)
	if len(short) > 0 && !Critical(pod) {
		return short[0].refusal()
	}
	for _, r := range []Refusal{affinity(node, pod), nodeName(node, pod), others.conflict(claim), taints(node, pod)} {
		if r.Refused() {
			return r
		}
	}
	if len(short) == 0 {
		return Refusal{}
	}
	r := short[0].refusal()
	for _, s := range short {
		r.Shortages = append(r.Shortages, Shortage{s.name, s.requested - (s.capacity - s.used)})
	}
	return r
}

// Critical reports whether a pod is static or has a system priority.
func Critical(pod *v1.Pod) bool { return translate.IsCritical(pod) }

// pressure refuses pods during a shortage. If only memory is short, it admits pods that request some.
func pressure(node *Node, pod *v1.Pod) Refusal {
	if Critical(pod) || len(node.Under) == 0 {
		return Refusal{}
	}
	if slices.Equal(node.Under, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if translate.QOSClass(pod) != v1.PodQOSBestEffort || tolerated(pod, &taint) {
			return Refusal{}
		}
	}
	return Refusal{Reason: ReasonEvicted, Message: fmt.Sprintf(conditionMessagePattern, node.Under),
		Cause: messages.Cause{Code: messages.CausePressure, Detail: fmt.Sprint(node.Under)}}
}

// operatingSystem checks the pod's OS label and field against the agent's OS.
func operatingSystem(_ *Node, pod *v1.Pod) Refusal {
	if label, ok := pod.Labels[v1.LabelOSStable]; ok && label != linux {
		return Refusal{Reason: ReasonOSLabel, Message: fmt.Sprintf("the pod's label %s is %s, and this node's is %s",
			v1.LabelOSStable, label, linux)}
	}
	if pod.Spec.OS == nil || pod.Spec.OS.Name == linux {
		return Refusal{}
	}
	return Refusal{Reason: ReasonOS, Message: fmt.Sprintf("spec.os.name is %s, and this node's is %s", pod.Spec.OS.Name, linux)}
}

func groupsPolicy(node *Node, pod *v1.Pod) Refusal {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict ||
		node.GroupsPolicy {
		return Refusal{}
	}
	return Refusal{Reason: ReasonGroupsPolicy, Message: "this node's container runtime cannot do SupplementalGroupsPolicy=Strict"}
}

func nodeName(node *Node, pod *v1.Pod) Refusal {
	if pod.Spec.NodeName == "" || pod.Spec.NodeName == node.Object.Name || translate.IsStatic(pod) {
		return Refusal{}
	}
	return predicate(ReasonNodeName, fmt.Sprintf("the pod is for node %s, and this is %s", pod.Spec.NodeName, node.Object.Name))
}

// taints checks NoExecute taints only: NoSchedule does not affect a pod that is already bound.
func taints(node *Node, pod *v1.Pod) Refusal {
	if translate.IsStatic(pod) {
		return Refusal{}
	}
	for i := range node.Object.Spec.Taints {
		taint := &node.Object.Spec.Taints[i]
		if taint.Effect == v1.TaintEffectNoExecute && !tolerated(pod, taint) {
			return predicate(ReasonTaintToleration, "the pod does not tolerate the node's taint "+taint.ToString())
		}
	}
	return Refusal{}
}

func tolerated(pod *v1.Pod, taint *v1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t v1.Toleration) bool {
		return t.ToleratesTaint(klog.Logger{}, taint, false) // comparison operators are behind a gate that is alpha
	})
}

// appArmor looks at profiles that have to be enforced.
func appArmor(node *Node, pod *v1.Pod) Refusal {
	if node.AppArmor {
		return Refusal{}
	}
	asks := func(p *v1.AppArmorProfile) bool { return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined }
	asked := pod.Spec.SecurityContext != nil && asks(pod.Spec.SecurityContext.AppArmorProfile)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		asked = asked || c.SecurityContext != nil && asks(c.SecurityContext.AppArmorProfile)
	}
	for key, value := range pod.Annotations {
		asked = asked || strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) &&
			value != v1.DeprecatedAppArmorBetaProfileNameUnconfined
	}
	if !asked {
		return Refusal{}
	}
	return Refusal{Reason: ReasonAppArmor, Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
}

// predicate is a refusal in the form that the scheduler's rules have.
func predicate(name, why string) Refusal {
	return Refusal{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why), Cause: messages.Cause{Text: why}}
}

// affinity checks spec.nodeSelector and the required node affinity.
func affinity(node *Node, pod *v1.Pod) Refusal {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node.Object)
	switch {
	case err != nil:
		return predicate(ReasonNodeAffinity, "the pod's node affinity cannot be read: "+err.Error())
	case matches:
		return Refusal{}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		want := pod.Spec.NodeSelector[key]
		switch label, ok := node.Object.Labels[key]; {
		case !ok:
			return predicate(ReasonNodeAffinity,
				fmt.Sprintf("the pod's nodeSelector wants the label %s=%s, which this node has not", key, want))
		case label != want:
			return predicate(ReasonNodeAffinity, fmt.Sprintf("the pod's nodeSelector wants the label %s=%s, and this node has %s",
				key, want, label))
		}
	}
	return predicate(ReasonNodeAffinity, "this node's labels are not what the pod's node affinity requires")
}
