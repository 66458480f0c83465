package pod

import (
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
	policy := policyOf(pod, spec)
	succeeded := f.ExitCode == 0
	if init && !cri.RestartsAlways(spec) {
		switch {
		case succeeded:
			return leave
		case policy == v1.RestartPolicyNever:
			return failPod
		default:
			return restart
		}
	}
	switch policy {
	case v1.RestartPolicyNever:
		return leave
	case v1.RestartPolicyOnFailure:
		if succeeded {
			return leave
		}
	case v1.RestartPolicyAlways:
	}
	return restart
}

// policyOf is the restartPolicy of one container: the pod's, unless it has its own.
func policyOf(pod *v1.Pod, spec *v1.Container) v1.RestartPolicy {
	if spec.RestartPolicy != nil {
		return v1.RestartPolicy(*spec.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}
