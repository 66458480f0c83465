package translate

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// containersOf are the pod's containers, those of init first, without ephemeral ones.
func containersOf(pod *v1.PodSpec) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{pod.InitContainers, pod.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// RestartsAlways says that a container has the restart policy Always of its own; an init container that has is a sidecar
// (KEP-753).
func RestartsAlways(container *v1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// RestartPolicy is that of one container: its pod's, unless it has its own.
func RestartPolicy(pod *v1.PodSpec, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.RestartPolicy
}

// Restarts says whether a container that ended with this code is to be started again: by the first of its own rules that the code
// meets, or else by its policy (KEP-5307). A rule to restart all containers (RestartsAll) counts as none.
func Restarts(pod *v1.PodSpec, c *v1.Container, code int32) bool {
	if ruled(c, code) == v1.ContainerRestartRuleActionRestart {
		return true
	}
	policy := RestartPolicy(pod, c)
	return policy != v1.RestartPolicyNever && (policy != v1.RestartPolicyOnFailure || code != 0)
}

// RestartsAll says whether a container that ended with this code has all containers of its pod restarted, by the first of its
// rules that the code meets (KEP-5532).
func RestartsAll(c *v1.Container, code int32) bool {
	return ruled(c, code) == v1.ContainerRestartRuleActionRestartAllContainers
}

// MayRestartAll says that a container of the pod has a rule by which all are restarted.
func MayRestartAll(pod *v1.PodSpec) bool {
	for c := range containersOf(pod) {
		if slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		}) {
			return true
		}
	}
	return false
}

// ruled is the action of the first rule that the exit code meets; empty where it meets none.
func ruled(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	first := slices.IndexFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool { return meets(r.ExitCodes, code) })
	if first < 0 {
		return ""
	}
	return c.RestartPolicyRules[first].Action
}

// meets says whether an exit code is one of those that a rule is about.
func meets(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	listed := slices.Contains(codes.Values, code)
	return codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn && listed ||
		codes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn && !listed
}
