package work

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// StartSandbox runs a sandbox for the pod, under this attempt, in the pod's cgroup. It records the pod's start time on the
// sandbox.
type StartSandbox struct {
	Pod          *v1.Pod
	Attempt      uint32
	Started      time.Time
	CgroupParent string
}

// SandboxStarted is the result of StartSandbox. Fact is nil when it failed.
type SandboxStarted struct {
	Attempt uint32
	Fact    *messages.SandboxFact
	Reason  messages.Reason
	// Taken means that something else has the attempt's name for good: the next attempt uses another name.
	Taken bool
	// Reserved means that a sandbox that the runtime does not list has the attempt's name: a call that timed out is still in
	// progress, or is being undone.
	Reserved bool
	// Warnings describe the parts of the pod's resolver configuration that were left out.
	Warnings []translate.DNSWarning
}

func (StartSandbox) call() (name string, calls int) { return "RunPodSandbox", 4 }

// run creates the attempt's sandbox, or adopts the sandbox with its name. It joins an attempt in progress.
func (e StartSandbox) run(ctx context.Context, h *host.Host) any {
	key := fmt.Sprintf("%ssandbox/%d", cri.StartPrefix(string(e.Pod.UID)), e.Attempt)
	fact, err := cri.Run(ctx, h.Ops, key, h.Reap(4), func(ctx context.Context) (messages.SandboxFact, error) {
		return e.make(ctx, h)
	})
	out := SandboxStarted{Attempt: e.Attempt}
	if err = host.Joined(err); err != nil {
		_, out.Taken = errors.AsType[*takenError](err)
		out.Reserved = cri.IsNameConflict(err)
		out.Reason = *failed(messages.ReasonCreateSandbox, err)
		return out
	}
	out.Fact, out.Warnings = &fact, h.DNSWarnings(e.Pod)
	return out
}

// takenError reports that the attempt's name belongs to a sandbox that is not usable any more.
type takenError struct{ id string }

func (e *takenError) Error() string {
	return "a sandbox of that name and attempt is there already and not ready: " + e.id
}

func (e StartSandbox) make(ctx context.Context, h *host.Host) (messages.SandboxFact, error) {
	handler, err := runtimeHandler(ctx, h, e.Pod)
	if err != nil {
		return messages.SandboxFact{}, err
	}
	users, err := h.NewUsers(ctx, e.Pod, handler)
	if err != nil {
		return messages.SandboxFact{}, err
	}
	config, err := h.SandboxConfig(e.Pod, e.Attempt, e.CgroupParent, users)
	if err != nil {
		return messages.SandboxFact{}, err
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[cri.AnnotationRootDir] = h.RootDir
	config.Annotations[cri.AnnotationPodStarted] = e.Started.UTC().Format(time.RFC3339Nano)
	if err := host.MakeLogDir(config.GetLogDirectory()); err != nil {
		return messages.SandboxFact{}, err
	}
	id, err := h.CRI.RunPodSandbox(ctx, config, handler)
	if err == nil && id == "" {
		err = errors.New("the runtime answered RunPodSandbox without an ID")
	}
	if err != nil {
		// The request may have succeeded: the sandbox is looked up by name, and never requested again blindly.
		if !cri.IsNameConflict(err) && !cri.IsTimeout(err) && id == "" && cri.IsPermanent(err) {
			return messages.SandboxFact{}, err
		}
		found, lookErr := findSandbox(ctx, h, e.Pod, e.Attempt)
		if root := h.CRI.ForeignRoot(string(e.Pod.UID)); root != "" && found == "" && cri.IsNameConflict(err) {
			return messages.SandboxFact{}, fmt.Errorf("the pod belongs to the agent with --root-dir %s: take its manifest away "+
				"there or here; if that agent will not run again, remove %s", root, filepath.Join(root, "playlet", "lock"))
		}
		if lookErr != nil || found == "" {
			return messages.SandboxFact{}, err
		}
		id = found
	}
	fact, err := sandboxFact(ctx, h, id)
	if err == nil {
		h.Started.AddSandbox(string(e.Pod.UID), fact)
	}
	return fact, err
}

// classTimeout is how long a sandbox waits for RuntimeClasses that have not been read yet, before it fails with an error.
const classTimeout = 2 * time.Second

// runtimeHandler returns the runtime's handler by the pod's RuntimeClass. It applies to this new sandbox alone: an existing one
// keeps its handler, whatever happens to the class.
func runtimeHandler(ctx context.Context, h *host.Host, pod *v1.Pod) (handler string, err error) {
	err = h.Objects.Settle(ctx, classTimeout, func() error {
		handler, err = h.Objects.RuntimeHandler(pod)
		return err
	})
	return handler, err
}

// sandboxFact reads the state of a sandbox that was just created or found.
func sandboxFact(ctx context.Context, h *host.Host, id string) (messages.SandboxFact, error) {
	resp, err := h.CRI.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return messages.SandboxFact{}, err
	}
	fact, err := facts.Sandbox(resp.GetStatus())
	if err != nil {
		return fact, err
	}
	if !fact.Ready {
		return fact, &takenError{id}
	}
	return fact, nil
}

// findSandbox returns the ID of the sandbox of this attempt, or "".
func findSandbox(ctx context.Context, h *host.Host, pod *v1.Pod, attempt uint32) (string, error) {
	list, err := h.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: facts.PodFilter(string(pod.UID))})
	if err != nil {
		return "", err
	}
	for _, s := range list {
		if s.GetMetadata().GetAttempt() == attempt {
			return s.GetId(), nil
		}
	}
	return "", nil
}

// StopSandbox stops a sandbox, which releases its network; it is not removed.
type StopSandbox struct{ UID, ID string }

// SandboxStopped is the result of StopSandbox.
type SandboxStopped struct {
	ID     string
	Failed *messages.Reason
	// Running means that a container runs in the sandbox that the pod considers ended: the pod has to be read again.
	Running bool
}

func (StopSandbox) call() (name string, calls int) { return "StopPodSandbox", 2 }

func (e StopSandbox) run(ctx context.Context, h *host.Host) any {
	err := h.Ops.StopSandbox(ctx, h.CRI, e.UID, e.ID, h.Reap(2), nil)
	out := SandboxStopped{ID: e.ID}
	if err = host.Joined(err); err != nil {
		out.Failed = failed(messages.ReasonStopSandbox, err)
		_, out.Running = errors.AsType[*cri.RunningError](err)
	}
	return out
}
