package translate

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// containersOf iterates over the pod's containers, init containers first, without ephemeral ones.
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

// RestartsAlways reports whether a container has its own restart policy Always; such an init container is a sidecar (KEP-753).
func RestartsAlways(container *v1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// RestartPolicy returns the container's own policy, or the pod's.
func RestartPolicy(pod *v1.PodSpec, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.RestartPolicy
}

// Restarts reports whether a container that exited with this code is to be restarted: by the first of its rules that matches the
// code, or else by its policy (KEP-5307). A rule to restart all containers (RestartsAll) does not count.
func Restarts(pod *v1.PodSpec, c *v1.Container, code int32) bool {
	if ruled(c, code) == v1.ContainerRestartRuleActionRestart {
		return true
	}
	policy := RestartPolicy(pod, c)
	return policy != v1.RestartPolicyNever && (policy != v1.RestartPolicyOnFailure || code != 0)
}

// RestartsAll reports whether a container's exit with this code restarts all containers of its pod, by the first rule that
// matches the code (KEP-5532).
func RestartsAll(c *v1.Container, code int32) bool {
	return ruled(c, code) == v1.ContainerRestartRuleActionRestartAllContainers
}

// MayRestartAll reports whether a container of the pod has a rule to restart all.
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

// ruled returns the action of the first rule that matches the exit code, or "".
func ruled(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	first := slices.IndexFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool { return meets(r.ExitCodes, code) })
	if first < 0 {
		return ""
	}
	return c.RestartPolicyRules[first].Action
}

// meets reports whether a rule's condition matches an exit code.
func meets(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	listed := slices.Contains(codes.Values, code)
	return codes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn && listed ||
		codes.Operator == v1.ContainerRestartRuleOnExitCodesOpNotIn && !listed
}
