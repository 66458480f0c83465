package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/remains"
	"github.com/playlet-dev/playlet/cri/translate"
)

// RemovePod removes the pod's sandboxes and containers, as the runtime lists them, and its log folder. It joins a removal in
// progress. A panic of the removal is passed on to the caller.
func (h *Host) RemovePod(ctx context.Context, pod *v1.Pod) error {
	_, err := h.Ops.Do(ctx, string(pod.UID)+"/remove", h.Reap(10), func(ctx context.Context) (any, error) {
		uid := string(pod.UID)
		asked := map[string]bool{}
		left := removeContainers(ctx, h, uid, asked)
		err := removeSandboxes(ctx, h, uid, asked, left == nil)
		if left != nil && err == nil { // containers may be gone with their sandbox
			left = removeContainers(ctx, h, uid, asked)
		}
		if err == nil {
			h.Ops.ForgetSandboxes(uid)
		}
		return nil, errors.Join(left, err, removeLogs(ctx, h, pod))
	})
	return Joined(err)
}

// removeContainers removes the pod's containers and adds those that it asked to stop.
func removeContainers(ctx context.Context, h *Host, uid string, asked map[string]bool) error {
	if err := h.Ops.Settle(ctx, cri.StartPrefix(uid)); err != nil {
		return err
	}
	list, err := h.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			// It came up after the pod had ended. It gets a signal before it is removed.
			asked[c.GetId()] = true
			errs = append(errs, Ignore(h.CRI.StopContainer(ctx, c.GetId(), 0)))
		}
		errs = append(errs, Ignore(h.CRI.RemoveContainer(ctx, c.GetId())))
	}
	return errors.Join(errs...)
}

// removeSandboxes stops and removes the pod's sandboxes. If it is empty of containers, a sandbox that this process has stopped is
// not stopped again.
func removeSandboxes(ctx context.Context, h *Host, uid string, asked map[string]bool, empty bool) error {
	list, err := h.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		var err error
		ready := s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		if ready || !empty || !h.Ops.SandboxStopped(uid, s.GetId()) {
			err = h.Ops.StopSandbox(ctx, h.CRI, uid, s.GetId(), h.Reap(2), asked)
		}
		if err == nil {
			err = remains.RemoveSandbox(ctx, s.GetId(), h.CRI.RemovePodSandbox)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func removeLogs(ctx context.Context, h *Host, pod *v1.Pod) error {
	dir := translate.PodLogDir(h.Node.PodLogsDir, pod)
	root, err := safepath.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = safepath.RemoveAllOneFilesystem(ctx, root, filepath.Base(dir))
	return errors.Join(err, root.Close())
}
