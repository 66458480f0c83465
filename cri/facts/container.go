// Package facts converts CRI statuses of containers and sandboxes into the messages' facts.
//
// The mapping is pure. The termination message is not part of a status: MessageSource names it, and its Read method is I/O, to be
// called outside a mailbox. No content of a status, written by a runtime, a pod or another tool, can make a function of this
// package panic.
package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// Owner is the pod named by the labels of a container or sandbox.
type Owner struct{ UID, Name, Namespace string }

// ErrForeign is wrapped by the error about an object in the runtime that no kubelet made: it lacks the pod's labels, or fields
// that the CRI requires of a status. It must be left alone.
var ErrForeign = errors.New("not a pod's")

// OwnerOf reads the owner from labels. Each of the three labels must be present and not empty, and the UID must be valid as one
// element of an address.
func OwnerOf(labels map[string]string) (Owner, error) {
	for _, key := range []string{cri.LabelPodUID, cri.LabelPodName, cri.LabelPodNamespace} {
		if labels[key] == "" {
			return Owner{}, fmt.Errorf("%w: the label %s is missing or empty", ErrForeign, key)
		}
	}
	o := Owner{UID: labels[cri.LabelPodUID], Name: labels[cri.LabelPodName], Namespace: labels[cri.LabelPodNamespace]}
	if err := messages.CheckUID(o.UID); err != nil {
		return Owner{}, fmt.Errorf("%w: the UID %q: %w", ErrForeign, o.UID, err)
	}
	return o, nil
}

// Container returns the fact of a container's full status. It lacks the sandbox, which only ListContainers reports, and the
// application's termination message: see Source and AddMessage. Code, reason and end are only set for exited containers. The
// error wraps ErrForeign. The fact shares the status' annotations, which must not be changed afterwards.
func Container(status *runtimeapi.ContainerStatus) (messages.ContainerFact, error) {
	f, err := described(status)
	if err != nil {
		return messages.ContainerFact{}, err
	}
	f.LogPath, f.User = status.GetLogPath(), userOf(status.GetUser())
	f.Resources = resourcesOf(status.GetResources().GetLinux())
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

// Listed returns the light fact of an item of ListContainers: it lacks the times of start and end, exit code, reason, message,
// log path and user. The error wraps ErrForeign.
func Listed(c *runtimeapi.Container) (messages.ContainerFact, error) {
	f, err := described(c)
	f.SandboxID = c.GetPodSandboxId()
	return f, err
}

// described returns the part of a fact that both a status and a list item have.
func described(c interface {
	GetId() string
	GetLabels() map[string]string
	GetMetadata() *runtimeapi.ContainerMetadata
	GetState() runtimeapi.ContainerState
	GetCreatedAt() int64
	GetImage() *runtimeapi.ImageSpec
	GetImageRef() string
	GetImageId() string
	GetAnnotations() map[string]string
}) (messages.ContainerFact, error) {
	id, name := c.GetId(), c.GetLabels()[cri.LabelContainerName]
	if err := identity("container", id, c.GetLabels(), c.GetMetadata() != nil); err != nil {
		return messages.ContainerFact{}, err
	}
	if name == "" {
		return messages.ContainerFact{}, fmt.Errorf("container %s: %w: the label %s is missing or empty", id, ErrForeign,
			cri.LabelContainerName)
	}
	return messages.ContainerFact{
		ID:        id,
		Name:      name,
		Attempt:   c.GetMetadata().GetAttempt(),
		State:     ContainerState(c.GetState()),
		CreatedAt: timeOf(c.GetCreatedAt()),
		Image:     c.GetImage().GetImage(),
		ImageRef:  c.GetImageRef(),
		// Runtimes older than CRI 1.30 report no ID of the image.
		ImageID:     cmp.Or(c.GetImageId(), c.GetImageRef()),
		Annotations: c.GetAnnotations(),
	}, nil
}

// CutOff reports whether the container certainly never ran because its start was cancelled: the caller died, lost the
// connection or reached its deadline. Runtimes then give up half-way and leave the container exited with StartError. That is no
// failure of the container, and the attempt must be repeated. containerd reports the end of the context or, if it was waiting
// for the shim's command, that the command was killed. That ends the message; the text before it may quote the container's
// command. A hook of the runtime that times out looks the same. If containerd had created the task and was starting it, the
// program may have begun: the attempt counts as run, so that a container with restartPolicy Never does not run twice.
func CutOff(f messages.ContainerFact) bool {
	if f.State != messages.ContainerExited || !f.StartedAt.IsZero() ||
		strings.HasPrefix(f.Message, "failed to start containerd task ") {
		return false
	}
	message := strings.TrimSuffix(f.Message, ": unknown")
	return strings.HasSuffix(message, ": "+context.Canceled.Error()) ||
		strings.HasSuffix(message, ": "+context.DeadlineExceeded.Error()) ||
		strings.HasSuffix(message, ": signal: killed") && strings.Contains(message, "failed to start shim: ")
}

// identity checks the fields that every object of a pod has.
func identity(kind, id string, labels map[string]string, metadata bool) error {
	if id == "" || !metadata {
		return fmt.Errorf("%w: a %s without an ID or metadata", ErrForeign, kind)
	}
	if _, err := OwnerOf(labels); err != nil {
		return fmt.Errorf("%s %s: %w", kind, id, err)
	}
	return nil
}

// ContainerState converts a CRI state. A value outside the CRI's table is unknown.
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

// timeOf converts the CRI's nanoseconds since 1970. Zero means "never"; so do negative values, which runtimes send that convert
// an unset time.
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

// Resources returns the resources of a running container: the given values, replaced by a reported value only if it differs from
// the requested one. This avoids rounding of values that were applied as requested. The result is the caller's.
func Resources(given v1.ResourceRequirements, asked *runtimeapi.LinuxContainerResources,
	reported messages.ContainerResources) v1.ResourceRequirements {
	out := *given.DeepCopy()
	set := func(list *v1.ResourceList, name v1.ResourceName, q *resource.Quantity) {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = *q
	}
	if reported.CPUShares > 0 && reported.CPUShares != asked.GetCpuShares() {
		set(&out.Requests, v1.ResourceCPU, resource.NewMilliQuantity(reported.CPUShares*1000/1024, resource.DecimalSI))
	}
	switch same := reported.CPUQuota == asked.GetCpuQuota() && reported.CPUPeriod == asked.GetCpuPeriod(); {
	case same:
	case reported.CPUQuota > 0 && reported.CPUPeriod > 0:
		set(&out.Limits, v1.ResourceCPU, resource.NewMilliQuantity(reported.CPUQuota*1000/reported.CPUPeriod, resource.DecimalSI))
	case asked.GetCpuQuota() > 0:
		delete(out.Limits, v1.ResourceCPU)
	}
	switch {
	case reported.MemoryLimit == asked.GetMemoryLimitInBytes():
	case reported.MemoryLimit > 0:
		set(&out.Limits, v1.ResourceMemory, resource.NewQuantity(reported.MemoryLimit, resource.BinarySI))
	case asked.GetMemoryLimitInBytes() > 0:
		delete(out.Limits, v1.ResourceMemory)
	}
	return out
}
