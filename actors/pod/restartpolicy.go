package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// answer is what the pod's supervision strategy says about the end of a container.
type answer int

const (
	restart answer = iota // start it again, after back-off
	leave                 // it is done; leave it ended
	failPod               // it is done, and the pod has failed with it
)

// strategy is restartPolicy as a supervision strategy: what follows the end of a container. An init container must
// succeed; a sidecar (an init container with restartPolicy Always, KEP-753) never ends for good.
func strategy(pod *v1.Pod, spec *v1.Container, init bool, f messages.ContainerFact) answer {
	sidecar, again := init && cri.RestartsAlways(spec), restarts(pod, spec, f.ExitCode)
	switch {
	case sidecar:
		return restart
	case init && f.ExitCode == 0:
		return leave
	case init && !again:
		return failPod
	case again:
		return restart
	default:
		return leave
	}
}

// restarts says whether a container that ended with this code is to be started again: by the first of its own rules that the code
// meets, or else by its policy (KEP-5307).
func restarts(pod *v1.Pod, spec *v1.Container, code int32) bool {
	for i := range spec.RestartPolicyRules {
		if rule := &spec.RestartPolicyRules[i]; meets(rule.ExitCodes, code) {
			return rule.Action == v1.ContainerRestartRuleActionRestart || byPolicy(pod, spec, code)
		}
	}
	return byPolicy(pod, spec, code)
}

// byPolicy is restarts of a container without rules.
func byPolicy(pod *v1.Pod, spec *v1.Container, code int32) bool {
	switch policyOf(pod, spec) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return code != 0
	case v1.RestartPolicyAlways:
	}
	return true
}

// meets says whether an exit code is one of those that a rule is about.
func meets(codes *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	listed := slices.Contains(codes.Values, code)
	switch codes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return listed
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !listed
	default:
		return false
	}
}

// policyOf is the restartPolicy of one container: the pod's, unless it has its own.
func policyOf(pod *v1.Pod, spec *v1.Container) v1.RestartPolicy {
	if spec.RestartPolicy != nil {
		return v1.RestartPolicy(*spec.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}
