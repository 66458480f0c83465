package facts

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// The API's bounds for a termination message: of the file in bytes, of the log in lines and bytes
// (v1.Container.TerminationMessagePath, TerminationMessagePolicy).
const (
	maxMessageBytes = 4096
	maxLogLines     = 80
	maxLogBytes     = 2048
)

// cannotRun is the reason that older runtimes give for a container that was never started. It has no log.
const cannotRun = "ContainerCannotRun"

// MessageSource says where the message that an application left at its end is to be found. Zero: nowhere.
type MessageSource struct {
	// File is the host's path of the file that was mounted for it; "" where there is none.
	File string
	// Log is the CRI log to take the end of where the file gives nothing; "" where the policy does not ask for it.
	Log string
	// PodUID tells the folder of the container's pod, in which File lies unless it is of a hostPath.
	PodUID string
}

// Source tells where the termination message of an exited container is; the zero source of any other. It follows
// terminationMessagePath and terminationMessagePolicy as the annotations keep them, and is pure.
func Source(status *runtimeapi.ContainerStatus) MessageSource {
	var src MessageSource
	if status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return src
	}
	if path := status.GetAnnotations()[cri.AnnotationTerminationMessagePath]; path != "" {
		if !strings.HasPrefix(path, "/") {
			path = "/" + path // relative paths are taken from the container's root
		}
		for _, m := range status.GetMounts() {
			if m.GetContainerPath() == path {
				src.File, src.PodUID = m.GetHostPath(), status.GetLabels()[cri.LabelPodUID]
				break
			}
		}
	}
	policy := v1.TerminationMessagePolicy(status.GetAnnotations()[cri.AnnotationTerminationMessagePolicy])
	if policy == v1.TerminationMessageFallbackToLogsOnError && status.GetExitCode() != 0 && status.GetReason() != cannotRun {
		src.Log = status.GetLogPath()
	}
	return src
}

// AddMessage is the fact with the application's message behind the runtime's.
func AddMessage(f messages.ContainerFact, text string) messages.ContainerFact {
	switch {
	case text == "":
	case f.Message == "":
		f.Message = text
	default:
		f.Message += ": " + text
	}
	return f
}
