package facts

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// The API's limits for a termination message: of the file in bytes, of the log in lines and bytes
// (v1.Container.TerminationMessagePath, TerminationMessagePolicy).
const (
	maxMessageBytes = 4096
	maxLogLines     = 80
	maxLogBytes     = 2048
)

// cannotRun is the reason older runtimes give for a container that was never started. It has no log.
const cannotRun = "ContainerCannotRun"

// MessageSource locates the message that an application left at its exit. The zero value means nowhere.
type MessageSource struct {
	// File is the host's path of the file mounted for it, or "".
	File string
	// Log is the CRI log to read if the file is empty, or "" if the policy does not permit that.
	Log string
	// PodUID identifies the pod's folder, which contains File unless File is on a hostPath volume.
	PodUID string
}

// Source locates the termination message of an exited container; for other states it returns the zero source. It follows
// terminationMessagePath and terminationMessagePolicy as recorded in the annotations, and is pure.
func Source(status *runtimeapi.ContainerStatus) MessageSource {
	var src MessageSource
	if status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return src
	}
	if path := status.GetAnnotations()[cri.AnnotationTerminationMessagePath]; path != "" {
		if !strings.HasPrefix(path, "/") {
			path = "/" + path // relative to the container's root
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

// AddMessage returns the fact with the application's message appended to the runtime's.
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
