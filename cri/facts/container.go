package facts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// Owner is the pod that a container or sandbox says it belongs to.
type Owner struct{ UID, Name, Namespace string }

// ErrForeign is wrapped by the error about something in the runtime that no kubelet made: it lacks the pod's labels, or
// what the CRI requires of a status. It must be left alone.
var ErrForeign = errors.New("not a pod's")

// OwnerOf reads the owner from labels. Each of the three labels must be there and not be empty, and the UID must be fit
// for one element of an address.
func OwnerOf(labels map[string]string) (Owner, error) {
	o := Owner{
		UID:       labels[cri.LabelPodUID],
		Name:      labels[cri.LabelPodName],
		Namespace: labels[cri.LabelPodNamespace],
	}
	for _, l := range []struct{ key, value string }{
		{cri.LabelPodUID, o.UID}, {cri.LabelPodName, o.Name}, {cri.LabelPodNamespace, o.Namespace},
	} {
		if l.value == "" {
			return Owner{}, fmt.Errorf("%w: the label %s is missing or empty", ErrForeign, l.key)
		}
	}
	if err := messages.CheckUID(o.UID); err != nil {
		return Owner{}, fmt.Errorf("%w: the UID %q: %w", ErrForeign, o.UID, err)
	}
	return o, nil
}

// Container is all that a status says of one container. It lacks the sandbox, which only ListContainers tells, and the
// termination message that the application left: see Source and AddMessage. Code, reason and end are taken of exited containers
// only. The error wraps ErrForeign. The fact shares the status' annotations, which must not be changed afterwards.
func Container(status *runtimeapi.ContainerStatus) (messages.ContainerFact, error) {
	name, err := identity("container", status.GetId(), status.GetLabels(), status.GetMetadata() != nil)
	if err != nil {
		return messages.ContainerFact{}, err
	}
	f := messages.ContainerFact{
		ID:          status.GetId(),
		Name:        name,
		Attempt:     status.GetMetadata().GetAttempt(),
		State:       ContainerState(status.GetState()),
		CreatedAt:   timeOf(status.GetCreatedAt()),
		Image:       status.GetImage().GetImage(),
		ImageRef:    status.GetImageRef(),
		ImageID:     status.GetImageId(),
		Annotations: status.GetAnnotations(),
		LogPath:     status.GetLogPath(),
		User:        userOf(status.GetUser()),
		Resources:   resourcesOf(status.GetResources().GetLinux()),
	}
	if f.ImageID == "" {
		f.ImageID = f.ImageRef // runtimes older than CRI 1.30 tell no ID of the image
	}
	if f.State != messages.ContainerCreated {
		f.StartedAt = timeOf(status.GetStartedAt())
	}
	if f.State == messages.ContainerExited {
		f.FinishedAt = timeOf(status.GetFinishedAt())
		f.ExitCode = status.GetExitCode()
		f.Reason = status.GetReason()
		f.Message = status.GetMessage()
	}
	return f, nil
}

// CutOff says that the container never ran because its start was cancelled: who asked for it died or lost the connection,
// and runtimes then give up half-way and leave the container exited with StartError. It is nobody's failure, and its
// attempt is to be made again. containerd either says that the context was cancelled, or, when it was waiting for the shim's
// command, that this was killed, which is how it ends one whose caller is gone.
func CutOff(f messages.ContainerFact) bool {
	if f.State != messages.ContainerExited || !f.StartedAt.IsZero() {
		return false
	}
	return strings.Contains(f.Message, context.Canceled.Error()) ||
		strings.Contains(f.Message, "failed to start shim") && strings.Contains(f.Message, "signal: killed")
}

// Listed is the light fact of an item of ListContainers: it lacks the times of start and end, exit code, reason,
// message, log path and user. The error wraps ErrForeign.
func Listed(c *runtimeapi.Container) (messages.ContainerFact, error) {
	name, err := identity("container", c.GetId(), c.GetLabels(), c.GetMetadata() != nil)
	if err != nil {
		return messages.ContainerFact{}, err
	}
	f := messages.ContainerFact{
		ID:          c.GetId(),
		Name:        name,
		SandboxID:   c.GetPodSandboxId(),
		Attempt:     c.GetMetadata().GetAttempt(),
		State:       ContainerState(c.GetState()),
		CreatedAt:   timeOf(c.GetCreatedAt()),
		Image:       c.GetImage().GetImage(),
		ImageRef:    c.GetImageRef(),
		ImageID:     c.GetImageId(),
		Annotations: c.GetAnnotations(),
	}
	if f.ImageID == "" {
		f.ImageID = f.ImageRef
	}
	return f, nil
}

// identity checks what every container of a pod has, and gives its name in the pod.
func identity(kind, id string, labels map[string]string, metadata bool) (string, error) {
	if id == "" || !metadata {
		return "", fmt.Errorf("%w: a %s without an ID or metadata", ErrForeign, kind)
	}
	if _, err := OwnerOf(labels); err != nil {
		return "", fmt.Errorf("%s %s: %w", kind, id, err)
	}
	name := labels[cri.LabelContainerName]
	if name == "" {
		return "", fmt.Errorf("%s %s: %w: the label %s is missing or empty", kind, id, ErrForeign, cri.LabelContainerName)
	}
	return name, nil
}

// ContainerState is the CRI's state in the messages' words. What is not in the CRI's table is unknown.
func ContainerState(s runtimeapi.ContainerState) messages.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return messages.ContainerCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return messages.ContainerRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return messages.ContainerExited
	}
	return messages.ContainerUnknown
}

// timeOf is the CRI's nanoseconds since 1970 as a time. Zero is "never"; so is anything below, which runtimes that
// convert an unset time send.
func timeOf(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func resourcesOf(r *runtimeapi.LinuxContainerResources) *messages.ContainerResources {
	if r == nil {
		return nil
	}
	return &messages.ContainerResources{CPUShares: r.GetCpuShares(), CPUQuota: r.GetCpuQuota(), CPUPeriod: r.GetCpuPeriod(),
		MemoryLimit: r.GetMemoryLimitInBytes()}
}

func userOf(u *runtimeapi.ContainerUser) *messages.ContainerUser {
	l := u.GetLinux()
	if l == nil {
		return nil
	}
	return &messages.ContainerUser{UID: l.GetUid(), GID: l.GetGid(), Groups: slices.Clone(l.GetSupplementalGroups())}
}
