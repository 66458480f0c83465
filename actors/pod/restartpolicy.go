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
	sidecar, again := init && cri.RestartsAlways(spec), cri.Restarts(&pod.Spec, spec, f.ExitCode)
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
